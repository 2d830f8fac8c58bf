#!/usr/bin/env python3
"""Functions that the benchmarks share: places of results, facts about the machine, servers, processes, other work, and
tables of raw data.

usage: bench/harness.py COMMAND FILE [PROGRAM...]     prints the facts for versions.txt; FILE is the measured program,
                                                      PROGRAM is a command such as "nginx -v"
"""
import argparse
import contextlib
import csv
import ctypes
import datetime
import hashlib
import io
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release")
PROGRAM = os.environ.get("STRAINGAUGE", os.path.join(TARGET, "straingauge"))
# Debian's servers are in /usr/sbin, which is not always in a user's PATH.
os.environ["PATH"] += ":/usr/sbin:/sbin"


# ---- Options and results

def stalling(port):
    """Source of a Node server that keeps its event loop busy for 60 ms in one of 200 requests."""
    return f"""let n = 0; require('http').createServer((q, s) => {{ if (++n % 200 == 0) {{ const until = Date.now() + 60;
while (Date.now() < until); }} s.end('x'.repeat(1024)); }}).listen({port}, '0.0.0.0')"""


def out_folder(name):
    """The directory for results, in bench/runs, or in a tool's bench/runs for its benchmarks."""
    place = os.path.relpath(os.path.dirname(os.path.abspath(sys.argv[0])), ROOT).split(os.sep)
    tool = place[:2] if place[0] == "toolkit" else []
    return os.path.join(ROOT, *tool, "bench", "runs", f"{datetime.date.today()}-{name}")


def options(doc, name):
    """A parser with the script's text as its help, and the option --out."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=out_folder(name),
                        help=f"folder for the results [{os.path.relpath(out_folder(name), ROOT)}]")
    return parser


def spread(values, digits=2):
    """The median with the range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def write(folder, name, text):
    """Replaces a file atomically, so that a reader never finds a part of it."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def write_table(folder, name, header, rows):
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    write(folder, name, text.getvalue())


class Rows:
    """A CSV file that grows by one row at a time. A crash or kill loses only the current measurement: a row is on
    the disk before the next one is measured, and a row that was cut off is dropped. Opening the file changes
    nothing."""

    def __init__(self, path, columns):
        self.path, self.columns, text = path, columns, ""
        if os.path.exists(path):
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read()
        self.whole = text[:text.rfind("\n") + 1]
        if self.whole and self.whole.splitlines()[0] != ",".join(columns):
            sys.exit(f"{path} has other columns than this version of the benchmark writes: use another folder")
        self.is_clean = bool(text) and text == self.whole
        rows = csv.DictReader(self.whole.splitlines())
        self.rows = [self.read(row) for row in rows if None not in row.values() and None not in row]

    @staticmethod
    def read(row):
        """Converts a row of text to values."""
        return row

    def add(self, row):
        if not self.is_clean:
            write(os.path.dirname(self.path), os.path.basename(self.path), self.whole or ",".join(self.columns) + "\n")
            self.is_clean = True
        text = {name: "" if row.get(name) is None else str(row[name]) for name in self.columns}
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self.columns, lineterminator="\n").writerow(text)
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(self.read(text))


def same_conditions(folder, now):
    """Rounds may be added only under equal conditions: writes them to versions.txt, or compares them with the
    written ones."""
    path = os.path.join(folder, "versions.txt")
    if not os.path.exists(path):
        write(folder, "versions.txt", now)
        return
    with open(path) as file:
        before = file.read()
    if before != now:
        sys.exit(f"{folder} has results from other conditions; use another folder.\nthere:\n{before}now:\n{now}")


# ---- The machine and the programs

def first_line(*command):
    """The first line that a command prints, without its project's address at the end. It shows the version."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        return (done.stdout + done.stderr).strip().splitlines()[0].split(" - http")[0]
    except (OSError, IndexError):
        return f"{command[0]}: not installed"


def seconds_of(text):
    """Seconds in straingauge's notation for times: 500ms, 40s, 1m."""
    for unit, factor in (("ms", 0.001), ("m", 60), ("s", 1)):
        if text.endswith(unit):
            return float(text[:-len(unit)]) * factor
    return float(text)


def digest(*paths):
    """The SHA-256 of these files together."""
    made = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            made.update(file.read())
    return made.hexdigest()


# The measured files, with their digests before the first measurement.
MEASURED = {}


def measures(path=PROGRAM):
    """Call it before measuring this program or library. It must exist; the facts name it with its digest."""
    found = shutil.which(path)
    if not found:
        sys.exit(f"there is no program {path}: cargo build --release --locked --bin straingauge, or name it with STRAINGAUGE")
    MEASURED[found] = digest(found)
    return path


def version():
    """Version and digest of straingauge, which must be equal to add rounds."""
    return f"{first_line(PROGRAM, '--version')}, SHA-256 {digest(shutil.which(PROGRAM))[:16]}"


def revision():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown revision"


def cpu_model():
    with open("/proc/cpuinfo") as file:
        return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "unknown CPU")


def inside(path):
    """A path relative to the repository. A path outside it becomes DIR."""
    return os.path.relpath(path, ROOT) if path.startswith(ROOT + os.sep) else os.path.join("DIR", os.path.basename(path))


def facts(command, *programs):
    """Lines for versions.txt: command, date, machine, measured files, and the versions of these programs. The tree
    is that of the scripts; the measured files may come from another one."""
    with open("/sys/devices/system/clocksource/clocksource0/current_clocksource") as file:
        clock = file.read().strip()
    return [f"command: {command}", f"date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
            f"kernel: {' '.join(os.uname()[i] for i in (0, 2, 4))}, clock {clock}", f"cpu: {cpu_model()}, {os.cpu_count()} CPUs",
            f"load average before: {' '.join(f'{load:.2f}' for load in os.getloadavg())}",
            f"tree: {revision()}",
            *(f"measured: {inside(os.path.abspath(path))}, SHA-256 {made}" for path, made in MEASURED.items()),
            *(first_line(*program.split()) for program in programs)]


def own_facts(*programs):
    """The facts with this command line, whose paths are relative to the repository. A path outside it becomes DIR."""
    short = lambda word: os.path.relpath(word, ROOT) if word.startswith(ROOT + os.sep) else "DIR" if word.startswith("/") else word
    return "\n".join(facts(" ".join(map(short, [os.path.abspath(sys.argv[0]), *sys.argv[1:]])), *programs)) + "\n"


def write_versions(folder, *programs):
    """Writes versions.txt for this command line."""
    write(folder, "versions.txt", own_facts(*programs))


def add_versions(folder, *programs):
    """Adds to versions.txt when rows are added to a table. Ends the program if the existing rows are from another
    program."""
    path, before = os.path.join(folder, "versions.txt"), ""
    if os.path.exists(path):
        with open(path) as file:
            before = file.read() + "\n"
        there = {line.rpartition(" ")[2] for line in before.splitlines() if line.startswith("measured: ")}
        if there != set(MEASURED.values()):
            whose = "another" if there else "an unknown"
            sys.exit(f"{folder} has results of {whose} program (SHA-256 in versions.txt); use another folder")
    write(folder, "versions.txt", before + own_facts(*programs))


def built(package, *target):
    """Builds a measured example or program of a crate (`--example NAME`, `--bin NAME`); returns its path."""
    subprocess.run(["cargo", "build", "--quiet", "--release", "--locked", "-p", package, *target], cwd=ROOT, check=True)
    return measures(os.path.join(TARGET, *(["examples"] if target[0] == "--example" else []), target[1]))


def compiled(source, to, *flags):
    """Compiles a C program, or a library if the name ends in .so; returns its path."""
    shared = ["-shared", "-fPIC"] if to.endswith(".so") else []
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-Werror", *shared, "-o", to, source, *flags], check=True)
    return to


# ---- Processes

def all_descriptors():
    """Raises the limit of open files as far as permitted; returns it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def on_cpu(number):
    """For `preexec_fn`: the process runs on this CPU and may open many files."""
    def prepare():
        os.sched_setaffinity(0, {number})
        all_descriptors()
    return prepare


def finish(process):
    """Waits for a process; returns its resource usage."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def end(process, patience_s=20):
    """Ends a process, by force if it takes too long."""
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def status_bytes(pid, name):
    """A size in /proc/PID/status."""
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


@contextlib.contextmanager
def scratch(name):
    """A temporary directory that servers without privileges can read."""
    with tempfile.TemporaryDirectory(prefix=f"straingauge-{name}-") as folder:
        os.chmod(folder, 0o755)
        yield folder


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process, what="the server", address="127.0.0.1"):
    """Waits until the port accepts connections."""
    for _ in range(1000):
        with contextlib.suppress(OSError), socket.create_connection((address, port), 5):
            return
        if process.poll() is not None:
            break
        time.sleep(0.02)
    sys.exit(f"{what} does not listen on port {port}")


def serve_command(kind, port, state, *more):
    """The command of a server in the testbed, without starting it."""
    return subprocess.run([os.path.join(ROOT, "testbed/serve"), kind, "--port", str(port), "--state", state, *more, "--print"],
                          capture_output=True, text=True, check=True).stdout.split()


@contextlib.contextmanager
def serving(kind, port, state, before=()):
    """A server of the testbed that accepts connections. It is ended with its whole session."""
    process = subprocess.Popen([*before, os.path.join(ROOT, "testbed/serve"), kind, "--port", str(port), "--state", state],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(port, process, kind)
        yield process
    finally:
        for number, patience_s in ((signal.SIGTERM, 20), (signal.SIGKILL, None)):
            with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
                os.killpg(process.pid, number)
                process.wait(patience_s)
                break


PR_SET_PDEATHSIG = 1


def ends_with(number):
    """For `preexec_fn`: the process gets this signal when the benchmark ends, for any reason."""
    library, parent = ctypes.CDLL(None), os.getpid()

    def prepare():
        library.prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:
            os._exit(1)
    return prepare


@contextlib.contextmanager
def running(words):
    """A process that ends with the block and with the benchmark."""
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, preexec_fn=ends_with(signal.SIGTERM))
    try:
        yield process
    finally:
        end(process)


# Uses half a CPU: 5 ms of work, 5 ms of sleep.
HALF_A_CPU = """
import time
while True:
    until = time.monotonic() + 0.005
    while time.monotonic() < until:
        pass
    time.sleep(0.005)
"""


def neighbour(is_wanted):
    """Other work that uses half a CPU, on any CPU, or none."""
    return running([sys.executable, "-c", HALF_A_CPU]) if is_wanted else contextlib.nullcontext()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    measures(sys.argv[2])
    print("\n".join(facts(sys.argv[1], *sys.argv[3:])))
