#!/usr/bin/env python3
"""Tests the program. It counts the requests that it serves by its own clocks, and refuses wrong arguments with a
sentence.

usage: test/served.py PROGRAM PLAIN_PROGRAM

"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

from run_tests import run_tests  # noqa: E402

# With sanitizers if available. The plain program simulates faster.
PROGRAM, PLAIN = sys.argv[1], sys.argv[2]
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
EXAMPLES = {
    "bucket": ["--rate", "500", "--burst", "3"],
    "thread": ["--time", "1ms"],
    "workers": ["--workers", "4", "--time", "5ms"],
    "growing": ["--workers", "2", "--time", "2ms", "--growth", "0.05"],
    "exponential": ["--workers", "4", "--time", "2ms", "--seed", "3"],
    "metastable": ["--workers", "2", "--time", "1ms", "--timeout", "8ms", "--retries", "3"],
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answer_of(connection):
    """Returns the body size of one complete answer."""
    text = b""
    while b"\r\n\r\n" not in text or len(text.split(b"\r\n\r\n", 1)[1]) < 128:
        got = connection.recv(4096)
        assert got, f"the connection ended after {text!r}"
        text += got
    assert text.startswith(b"HTTP/1.1 200 OK\r\n"), text
    return text.split(b"\r\n\r\n", 1)[1]


class Server:
    def __init__(self, kind, *more):
        self.port = free_port()
        words = [PROGRAM, kind, *(more or EXAMPLES[kind]), "--port", str(self.port), "--count"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        while True:
            try:
                self.connect().close()
                return
            except ConnectionRefusedError:
                assert self.process.poll() is None, "it ended while starting"

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 20)

    def end(self):
        self.process.terminate()
        said, _ = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, self.process.returncode
        return json.loads(said)


def closed_loop(server, clients, rounds):
    connections = [server.connect() for _ in range(clients)]
    for _ in range(rounds):
        for connection in connections:
            connection.sendall(REQUEST)
        for connection in connections:
            assert answer_of(connection) == b"x" * 128
    for connection in connections:
        connection.close()
    return clients * rounds


def every_request_is_answered_once_and_counted():
    for kind in EXAMPLES:
        server = Server(kind)
        asked = closed_loop(server, 6, 5)
        assert server.end()["served"] == asked, kind


def a_bucket_never_lets_more_through_than_its_tokens():
    server = Server("bucket")
    asked = closed_loop(server, 20, 5)
    span_s = server.end()["span_ns"] / 1e9
    assert asked - 3 <= 500 * span_s + 1, (asked, span_s)


def workers_never_do_more_than_their_capacity():
    server = Server("workers")
    asked = closed_loop(server, 12, 5)
    span_s = server.end()["span_ns"] / 1e9
    # The first four requests are not in the span. On a busy machine it begins later than they were due, by less than
    # one more.
    assert asked - 8 <= 4 * span_s / 0.005 + 1, (asked, span_s)


def what_a_client_adds_between_answer_and_request_is_counted():
    server = Server("workers")
    connection, rounds, rest_s = server.connect(), 20, 0.002
    began = time.monotonic()
    for _ in range(rounds):
        connection.sendall(REQUEST)
        answer_of(connection)
        time.sleep(rest_s)
    spent_s = time.monotonic() - began
    counted = server.end()
    # A rest longer than D (5 ms) is not counted.
    assert 0 < counted["away"] < rounds, counted
    assert rest_s * counted["away"] <= counted["away_ns"] / 1e9 <= spent_s - 0.005 * counted["away"], (counted, spent_s)


def the_thread_works_d_for_each_request_by_its_own_clock():
    server = Server("thread")
    asked = closed_loop(server, 3, 40)
    cpu_s = server.end()["cpu_ns"] / 1e9
    # The work of the first request includes the cost of starting.
    assert cpu_s >= (asked - 1) * 0.001, (asked, cpu_s)


def requests_in_one_piece_and_in_pieces_are_answered_in_turn():
    for kind in ("workers", "thread"):
        server = Server(kind)
        connection = server.connect()
        connection.sendall(REQUEST * 3)
        text = b""
        while text.count(b"x" * 128) < 3:
            text += connection.recv(4096)
        for piece in (REQUEST[:5], REQUEST[5:-2], REQUEST[-2:]):
            connection.sendall(piece)
        answer_of(connection)
        connection.close()
        assert server.end()["served"] == 4


def who_leaves_early_does_not_end_the_server():
    for kind in EXAMPLES:
        server = Server(kind)
        for _ in range(30):
            connection = server.connect()
            connection.sendall(REQUEST)
            connection.close()
        connection = server.connect()
        connection.sendall(b"x" * 5000)
        try:
            while connection.recv(100):
                pass
        except ConnectionResetError:
            pass
        assert closed_loop(server, 1, 1) == 1
        server.end()


def run(*words):
    return subprocess.run([PLAIN if "--truth" in words else PROGRAM, *words], capture_output=True, text=True, timeout=60)


def what_makes_no_sense_is_refused_with_a_sentence():
    with tempfile.TemporaryDirectory() as folder:
        seed, bad = os.path.join(folder, "seed"), os.path.join(folder, "bad")
        for path, text in ((seed, "0123456789abcdef\n"), (bad, "0123456789abcdeg\n")):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
        for words, part in [
            (["clock", "--port", "1"], "there is no kind clock"),
            (["bucket", "--port", "1"], "bucket needs --rate"),
            (["bucket", "--rate", "0", "--port", "1"], "--rate is 0; give 1 to"),
            (["bucket", "--rate", "nan", "--port", "1"], "--rate nan is not a number"),
            (["bucket", "--rate", "1e4x", "--port", "1"], "--rate 1e4x is not a number"),
            (["bucket", "--rate", "5", "--time", "5ms", "--port", "1"], "bucket has no --time"),
            (["workers", "--workers", "0", "--time", "5ms", "--port", "1"], "--workers is 0; give 1 to 256"),
            (["workers", "--workers", "1.5", "--time", "5ms", "--port", "1"], "give a whole number"),
            (["workers", "--workers", "257", "--time", "5ms", "--port", "1"], "--workers is 257"),
            (["workers", "--workers", "5", "--time", "5", "--port", "1"], "has no unit"),
            (["workers", "--workers", "5", "--time", "-5ms", "--port", "1"], "give 10us to 10s"),
            (["workers", "--workers", "5", "--time"], "--time needs a value"),
            (["workers", "--workers", "5", "--time", "5ms"], "give --port"),
            (["workers", "--workers", "5", "--time", "5ms", "--port", "65536"], "--port is 65536"),
            (["workers", "--workers", "5", "--time", "5ms", "--port", "1", "--address", "here"], "not an IPv4 address"),
            (["workers", "--workers", "5", "--time", "5ms", "--at", "1.1", "--truth"], "--at is 1.1; give 0.1 to 1"),
            (["workers", "--speed", "5"], "there is no option --speed"),
            (["growing", "--workers", "5", "--time", "5ms", "--growth", "2", "--truth"], "--growth is 2; give 0 to 1"),
            (["metastable", "--workers", "2", "--time", "5ms", "--timeout", "4ms", "--retries", "3", "--truth"],
             "each request would be late"),
            (["workers", "--sealed", seed, "--truth"], "--sealed and --draw must be given together"),
            (["workers", "--sealed", seed, "--draw", "1", "--workers", "4", "--truth"], "cannot be combined with --sealed"),
            (["workers", "--sealed", bad, "--draw", "1", "--truth"], "does not contain a seed"),
            (["workers", "--sealed", folder + "/none", "--draw", "1", "--truth"], "cannot be read"),
        ]:
            done = run(*words)
            assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, (words, done)
            assert done.stderr.startswith("truth: ") and part in done.stderr, (words, done.stderr)
        done = run()
        assert done.returncode == 2 and done.stderr.startswith("usage: truth"), done


def the_truth_is_printed_only_when_asked_for_and_is_that_of_the_draw():
    with tempfile.TemporaryDirectory() as folder:
        seed = os.path.join(folder, "seed")
        with open(seed, "w", encoding="ascii") as file:
            file.write("00000000000000ff\n")
        for kind in EXAMPLES:
            first, again, other = (run(kind, "--sealed", seed, "--draw", number, "--truth") for number in ("1", "1", "2"))
            truth = json.loads(first.stdout)
            assert first.stdout == again.stdout and truth["parameters"] != json.loads(other.stdout)["parameters"], kind
            # A server with the printed parameters is the same one.
            words = {"rate_per_sec": "--rate", "time_ns": "--time", "timeout_ns": "--timeout"}
            typed = []
            for name, value in truth["parameters"].items():
                typed += [words.get(name, "--" + name), f"{value // 1000}us" if name.endswith("_ns") else str(value)]
            if kind != "exponential":
                assert json.loads(run(kind, *typed, "--truth").stdout) == truth, (typed, truth)
        server = Server("workers", "--sealed", seed, "--draw", "1")
        closed_loop(server, 1, 1)
        assert set(server.end()) == {"served", "span_ns", "cpu_ns", "away", "away_ns"}


def a_server_can_be_slowed_down_to_a_share_of_its_capacity():
    for kind in EXAMPLES:
        whole, slowed = (json.loads(run(kind, *EXAMPLES[kind], *more, "--truth").stdout) for more in ([], ["--at", "0.9"]))
        assert abs(slowed["connections"]["peak_per_sec"] / whole["connections"]["peak_per_sec"] - 0.9) < 1e-6, (kind, slowed)
        for name in ("knee", "yield", "overload", "recovery"):
            before, after = whole["connections"][name], slowed["connections"][name]
            assert before == after or abs(before - after) < 1e-6 * before, (kind, name)


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
