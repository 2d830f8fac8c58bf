"""Runs the tests of a script, which are its functions named by a sentence, and prints a line for each and
the totals."""
import sys
import traceback


def run(tests, label=""):
    """Runs the functions; returns whether one failed. `label` distinguishes several runs of the same tests."""
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
    """Runs the functions in a script's globals() whose names have four underscores or more."""
    return run([test for name, test in names.items()
                if callable(test) and getattr(test, "__module__", "") == "__main__" and name.count("_") >= 4], label)
