"""Runs the tests of a script: its functions whose names are sentences (four underscores or more)."""
import traceback


def run_tests(names):
    """`names`: the script's globals(). Prints a line for each test and the sum; whether one failed."""
    passed = failed = 0
    for name, test in list(names.items()):
        if callable(test) and getattr(test, "__module__", "") == "__main__" and name.count("_") >= 4:
            try:
                test()
                passed += 1
                print(f"ok {name}", flush=True)
            except Exception:  # noqa: BLE001 the next test runs
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed != 0
