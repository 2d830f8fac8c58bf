"""Other work beside a benchmark, and processes that are gone with it."""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys

# Half a CPU: 5 ms of work, 5 ms of sleep.
HALF_A_CPU = """
import time
while True:
    until = time.monotonic() + 0.005
    while time.monotonic() < until:
        pass
    time.sleep(0.005)
"""
PR_SET_PDEATHSIG = 1


def ends_with(number):
    """For `preexec_fn`: the process gets this signal when the benchmark ends, however that is."""
    library, parent = ctypes.CDLL(None), os.getpid()

    def prepare():
        library.prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:
            os._exit(1)
    return prepare


@contextlib.contextmanager
def ended_with_us(words):
    """A process that is gone when this is left."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, preexec_fn=ends_with(signal.SIGKILL))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def neighbour(is_wanted):
    """A process that uses half a CPU, on whichever CPU it is put, or none."""
    return ended_with_us([sys.executable, "-c", HALF_A_CPU]) if is_wanted else contextlib.nullcontext()
