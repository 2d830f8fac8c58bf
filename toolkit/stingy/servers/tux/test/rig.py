"""Shared by the tests of tux and lighttpd: a server on a free port with a tree of documents, and raw requests."""

import concurrent.futures
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../../../../testbed"))
from run_tests import run  # noqa: E402

PATIENCE_S = 60  # a test that waits longer has lost an answer


def documents(folder):
    """A tree with everything that a static server may meet."""
    def write(name, content):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    write("a.txt", b"hello\n")
    write("empty", b"")
    write("1k.bin", bytes(i % 251 for i in range(1024)))
    write("big.bin", bytes(i * 7 % 253 for i in range(300_000)) * 10)
    write("with space & <tag>.html", b"<p>odd name</p>")
    write("indexed/index.html", b"<p>index</p>")
    write("listed/one.txt", b"1")
    write("listed/javascript:x", b"2")
    write("listed/.hidden", b"3")
    for i in range(500):
        write(f"many/file-{i:03d}", b"")
    os.mkfifo(os.path.join(folder, "fifo"))
    os.makedirs(os.path.join(folder, "bare"))
    write("example.org/a.txt", b"of example.org\n")
    write("default/a.txt", b"of default\n")


def claim_port():
    """A port below those that the kernel gives to clients, and a socket that reserves it among these tests until it is closed."""
    while True:
        port, claim = random.randrange(12000, 32000), socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0straingauge-test-port-{port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
            return port, claim
        except OSError:
            claim.close()


class Server:
    """A running tux; the command may contain options, among them the address."""

    GOOD_ENDS = (0,)
    address = "127.0.0.1"

    def __init__(self, words, *options, folder=None, env=None):
        self.folder = folder
        self.port, self.claim = claim_port()
        if "--address" in words:
            self.address = words[words.index("--address") + 1]
        self.start([*words, "--port", str(self.port), "--documents", folder, *options], env)

    def start(self, command, env):
        self.errors = tempfile.TemporaryFile()
        environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:halt_on_error=1", UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.errors, env=dict(environment, **(env or {})))
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection((self.address, self.port), 5).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.process.kill()
                    self.process.wait()
                    raise AssertionError("the server does not start: " + self.said()) from None
                time.sleep(0.02)

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def connect(self, timeout=PATIENCE_S):
        client = socket.create_connection((self.address, self.port), timeout)
        # Otherwise each piece of a request waits for the acknowledgement of the one before it.
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def ask(self, request, pieces=1):
        """Returns all bytes until the server closes."""
        with self.connect() as client:
            step = max(1, len(request) // pieces)
            for at in range(0, len(request), step):
                client.sendall(request[at:at + step])
                if pieces > 1:
                    time.sleep(0.002)
            client.shutdown(socket.SHUT_WR)
            return read_all(client)

    def sockets(self):
        """Returns the number of the server's sockets, including listeners."""
        folder, count = f"/proc/{self.process.pid}/fd", 0
        for name in os.listdir(folder):
            try:
                count += os.readlink(os.path.join(folder, name)).startswith("socket:")
            except FileNotFoundError:
                pass
        return count

    def end(self):
        """Ends the server; the message contains a sanitizer's report."""
        self.process.terminate()
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = "killed: it did not end"
        said = self.said()
        self.errors.close()
        self.claim.close()
        assert status in self.GOOD_ENDS and not said, f"status {status}: {said[-4000:]}"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            self.process.kill()
            self.process.wait()
            sys.stdout.write(self.said()[-3000:])
            self.errors.close()
        else:
            self.end()


def read_all(client):
    parts = []
    while True:
        try:
            part = client.recv(65536)
        except ConnectionResetError:
            return b"".join(parts)
        if not part:
            return b"".join(parts)
        parts.append(part)


def get(path, *fields, version="1.1", method="GET", host=True):
    lines = [f"{method} {path} HTTP/{version}", *(["Host: example.net"] if host else []), *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def split(answer):
    """Returns status, header fields in lower case, and body of one answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), fields, body


def answers(data, methods):
    """Returns the answers to several requests on one connection."""
    out = []
    for method in methods:
        status, fields, rest = split(data)
        length = 0 if method == "HEAD" or status == 304 else int(fields.get("content-length", 0))
        out.append((status, fields, rest[:length]))
        data = rest[length:]
    assert data == b"", data[:200]
    return out


def wait_for(condition, what):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def is_closed(client, timeout=PATIENCE_S):
    ready, _, _ = select.select([client], [], [], timeout)
    if not ready:
        return False
    try:
        return client.recv(65536) == b""
    except ConnectionResetError:
        return True


def run_with(start, tests, label, folder):
    """Runs tests with the server of `start()`, whose end is also a test, and removes the folder. Returns
    the exit status."""
    try:
        with start():
            return run(tests, label)
    except AssertionError as error:
        # No test failed: the server ended badly, or a sanitizer reported something.
        print(f"  {error}\nFAILED [{label}] the server's end\n0 passed, 1 failed")
        return 1
    finally:
        shutil.rmtree(folder)


def random_requests(seed, paths, fields, methods, closes):
    """Returns requests for one connection, and the number of pieces in which they are sent. `closes(path,
    fields, method)`: whether a request ends the connection, so that a later one may find it closed."""
    chosen = random.Random(seed)
    out = b""
    for _ in range(chosen.randint(1, 12)):
        path, more, version = chosen.choice(paths), chosen.sample(fields, chosen.choice([0, 0, 0, 1, 2])), chosen.choice(["1.1"] * 8 + ["1.0"])
        method = chosen.choice(methods)
        out += get(path, *more, method=method, version=version)
        if version == "1.0" or {"Connection: close", "Host: again"} & set(more) or closes(path, more, method):
            break
    if chosen.random() < 0.5 and out.count(b"HTTP/1.") == 1:
        at = chosen.randrange(len(out))
        out = out[:at] + bytes([chosen.randrange(256)]) + out[at + 1:]
    return out, chosen.choice([1, 1, 3, 10])


def answered_alike(servers, names, requests, masked, at_once):
    """Fails unless all servers give equal answers to the `requests` of 400 seeds, `at_once` connections at a time."""
    def answers_of(seed):
        return [masked(server.ask(*requests(seed))) for server in servers]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for seed, (expected, *others) in enumerate(pool.map(answers_of, range(400))):
            for name, answer in zip(names, others):
                assert answer == expected, f"{name} differs with seed {seed}: {requests(seed)[0][:300]!r}\n{expected[:300]!r}\n{answer[:300]!r}"
