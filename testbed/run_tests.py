"""Runs the tests of a script, its functions whose names are sentences, and prints a line for each and the sum."""
import sys
import traceback


def run(tests, label=""):
    """Runs the functions; whether one failed. `label`: what is tested, where the same tests run several times."""
    failed, label = 0, f"[{label}] " if label else ""
    for test in tests:
        try:
            test()
            print(f"ok {label}{test.__name__}", flush=True)
        except Exception:  # noqa: BLE001 -- whatever it is, it is that test's failure
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"FAILED {label}{test.__name__}", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    return failed != 0


def run_tests(names, label=""):
    """The same for a script's globals(): its functions with four underscores or more in their names."""
    return run([test for name, test in names.items()
                if callable(test) and getattr(test, "__module__", "") == "__main__" and name.count("_") >= 4], label)
