#!/usr/bin/env python3
"""Tests HTTP/1.1 by RFC 9110 and 9112 on one server. usage: conformance.py LABEL TUX [OPTION...]"""

import http.client
import os
import socket
import sys
import tempfile
import time

from rig import Server, answers, documents, get, is_closed, read_all, run_with, split, wait_for

LABEL, WORDS = sys.argv[1], sys.argv[2:]
FOLDER = tempfile.mkdtemp(prefix="tux-test-")
documents(FOLDER)
SERVER = None


def content(name):
    with open(os.path.join(FOLDER, name), "rb") as file:
        return file.read()


def ask(path, *fields, **how):
    return split(SERVER.ask(get(path, *fields, **how)))


def files_are_answered_with_their_bytes_and_types():
    for name, kind in [("a.txt", "text/plain; charset=utf-8"), ("1k.bin", "application/octet-stream"), ("empty", "application/octet-stream"),
                       ("big.bin", "application/octet-stream")]:
        status, fields, body = ask("/" + name)
        assert (status, body == content(name), fields["content-type"]) == (200, True, kind), (name, status, fields)
        assert fields["content-length"] == str(len(body)) and fields["last-modified"] == "Sun, 09 Sep 2001 01:46:40 GMT"


def a_library_client_keeps_its_connection():
    client = http.client.HTTPConnection(SERVER.address, SERVER.port, timeout=60)
    client.connect()
    first = client.sock
    for method, name in [("GET", "a.txt"), ("HEAD", "big.bin"), ("GET", "nothing"), ("GET", "big.bin"), ("GET", "empty"), ("GET", "1k.bin")] * 5:
        client.request(method, "/" + name)
        answer = client.getresponse()
        body = answer.read()
        if name == "nothing":
            assert answer.status == 404
        else:
            assert answer.status == 200 and body == (b"" if method == "HEAD" else content(name)), (method, name)
    assert client.sock is first
    client.close()


def pipelined_requests_are_answered_in_order():
    names = ["a.txt", "1k.bin", "empty", "indexed/", "a.txt"] * 20
    data = SERVER.ask(b"".join(get("/" + name) for name in names) + get("/a.txt", "Connection: close"))
    out = answers(data, ["GET"] * 101)
    for name, (status, _, body) in zip(names, out):
        assert status == 200 and body == content("indexed/index.html" if name == "indexed/" else name)
    assert out[-1][1]["connection"] == "close"


def requests_in_pieces_are_put_together():
    request = get("/a.txt") + get("/1k.bin", "Connection: close")
    for pieces in (2, 7, len(request)):
        out = answers(SERVER.ask(request, pieces), ["GET", "GET"])
        assert out[0][2] == content("a.txt") and out[1][2] == content("1k.bin")


def head_is_get_without_the_body():
    for path in ("/a.txt", "/big.bin", "/nothing", "/listed/", "/indexed"):
        full, head = ask(path), ask(path, method="HEAD")
        full[1].pop("date"), head[1].pop("date")
        assert head[2] == b"" and full[:2] == head[:2], path


def ranges_are_parts_of_the_file():
    whole = content("1k.bin")
    for wanted, first, last in [("0-0", 0, 0), ("10-19", 10, 19), ("1000-", 1000, 1023), ("1000-5000", 1000, 1023), ("-24", 1000, 1023), ("-5000", 0, 1023)]:
        status, fields, body = ask("/1k.bin", "Range: bytes=" + wanted)
        assert status == 206 and body == whole[first:last + 1], wanted
        assert fields["content-range"] == f"bytes {first}-{last}/1024"
    for wanted in ("1024-", "2000-3000", "-0"):
        status, fields, _ = ask("/1k.bin", "Range: bytes=" + wanted)
        assert status == 416 and fields["content-range"] == "bytes */1024", (wanted, status, fields)
    for wanted in ("bytes=5-2", "bytes=a-b", "lines=1-2", "bytes=0-1,5-6", "bytes=99999999999999999999-"):
        assert ask("/1k.bin", "Range: " + wanted)[::2] == (200, whole), wanted
    assert ask("/1k.bin", "Range: bytes=0-1", 'If-Range: "x"')[0] == 200
    assert ask("/empty", "Range: bytes=0-")[0] == 416


def what_has_not_changed_is_not_sent():
    tag = ask("/a.txt")[1]["etag"]
    for field in ("If-None-Match: " + tag, 'If-None-Match: "x", ' + tag, "If-None-Match: *", "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT"):
        status, fields, body = ask("/a.txt", field)
        assert status == 304 and body == b"" and "content-length" not in fields, field
    for field in ('If-None-Match: "x"', "If-Modified-Since: Sun, 09 Sep 2001 01:46:39 GMT", "If-Modified-Since: yesterday"):
        assert ask("/a.txt", field)[0] == 200, field


def folders_redirect_list_or_show_their_index():
    status, fields, _ = ask("/listed?q=1")
    assert status == 301 and fields["location"] == "/listed/?q=1"
    assert ask("//listed")[1]["location"] == "/listed/"
    assert ask("/indexed/")[2] == content("indexed/index.html")
    status, _, body = ask("/listed/")
    assert status == 200 and b'href="./one.txt"' in body and b'href="./javascript%3Ax"' in body and b"hidden" not in body
    status, _, body = ask("/many/")
    assert status == 200 and body.count(b"<li>") == 500 and body.endswith(b"</ul>\n")
    assert b"with%20space%20%26%20%3Ctag%3E.html" in ask("/")[2] and b"<tag>" not in ask("/")[2]


def paths_are_decoded_and_stay_inside():
    assert ask("/with%20space%20%26%20%3Ctag%3E.html")[2] == b"<p>odd name</p>"
    for path in ("/listed/../a.txt", "/./a.txt", "//a.txt", "/listed/%2e%2e/a.txt", "/listed%2F..%2Fa.txt", "/a.txt?x=1&y=2"):
        assert ask(path)[::2] == (200, b"hello\n"), path
    for path in ("/..", "/../etc/passwd", "/listed/../../a.txt", "/%2e%2e/x", "/a%00.txt", "/%zz", "/%2"):
        assert ask(path)[0] == 400, path
    for path in ("/nothing", "/a.txt/", "/nothing/", "/a.txt/b", "/" + "x" * 3000):
        assert ask(path)[0] == 404, path
    assert ask("/fifo")[0] == 403


def bad_requests_are_refused_and_the_connection_ends():
    for request, expected in [
        (b"GET\r\n\r\n", 400), (b"GET /a.txt\r\n\r\n", 400), (b"GET a.txt HTTP/1.1\r\nHost: x\r\n\r\n", 400), (b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505), (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nBad Field: y\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400), (b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400), (b"GET / HTTP/1.x\r\nHost: x\r\n\r\n", 505), (b"GET / HTTP/1.1\r\nHost: x\r\nNocolon\r\n\r\n", 400),
        (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n", 414), (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nBig: " + b"y" * 20000 + b"\r\n\r\n", 431), (b"GET /\rX: y\r\n HTTP/1.1\r\n\r\n", 400),
    ]:
        status, fields, body = split(SERVER.ask(request + get("/a.txt")))
        assert status == expected and fields["connection"] == "close" and body.endswith(b"</h1>\n"), (request[:60], status)


def other_methods_are_named_and_bodies_end_the_connection():
    status, fields, _ = ask("/a.txt", "Content-Length: 0", "Connection: close", method="POST")
    assert status == 405 and fields["allow"] == "GET, HEAD"
    assert ask("/a.txt", "Connection: close", method="BREW")[0] == 501
    body = b"z" * 200_000
    status, fields, _ = split(SERVER.ask(get("/a.txt", f"Content-Length: {len(body)}", method="POST") + body))
    assert status == 405 and fields["connection"] == "close"
    status, fields, answer = split(SERVER.ask(get("/a.txt", "Transfer-Encoding: chunked") + b"0\r\n\r\n"))
    assert status == 200 and answer == b"hello\n" and fields["connection"] == "close"


def older_clients_and_odd_but_legal_requests_are_served():
    assert ask("/a.txt", version="1.0", host=False)[::2] == (200, b"hello\n")
    status, fields, _ = ask("/a.txt", "Connection: Keep-Alive", version="1.0")
    assert status == 200 and fields["connection"] == "keep-alive"
    assert split(SERVER.ask(b"\r\n\r\nGET /a.txt HTTP/1.1\nhost: x\nCONNECTION: foo , ClOsE\n\n"))[2] == b"hello\n"
    assert ask("http://example.net/a.txt")[2] == b"hello\n" and ask("HTTP://example.net")[0] == 200
    assert ask("/a.txt", version="1.7")[0] == 200


def the_connection_ends_when_the_client_asks_for_it():
    with SERVER.connect() as client:
        client.sendall(get("/a.txt", "Connection: close"))
        assert split(read_all(client))[2] == b"hello\n"
    with SERVER.connect() as client:
        client.sendall(get("/a.txt", version="1.0"))
        assert split(read_all(client))[2] == b"hello\n"


def clients_that_go_away_do_no_harm():
    for i in range(60):
        client = SERVER.connect()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(get("/big.bin")[:None if i % 2 else i + 1])
        if i % 6 == 3:
            client.recv(1000)
        client.close()
    assert ask("/a.txt")[0] == 200


def a_slow_reader_gets_it_all():
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect((SERVER.address, SERVER.port))
        client.sendall(get("/big.bin") + get("/a.txt", "Connection: close"))
        time.sleep(0.3)
        assert ask("/1k.bin")[0] == 200
        out = answers(read_all(client), ["GET", "GET"])
        assert out[0][2] == content("big.bin") and out[1][2] == b"hello\n"


def slow_clients_time_out():
    """With a timeout of one second: clients that send no bytes, half a head, or a byte at a time, and one
    that reads no answer."""
    with Server(WORDS, "--timeout", "1", folder=FOLDER) as server:
        silent, half, deaf = server.connect(), server.connect(), socket.socket()
        half.sendall(b"GET /a.txt HT")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((server.address, server.port))
        deaf.sendall(get("/big.bin") * 4)
        dripping = server.connect()
        ended = False
        for byte in get("/a.txt", "X: " + "y" * 1000):
            try:
                dripping.sendall(bytes([byte]))
                dripping.settimeout(0.1)
                ended = dripping.recv(65536) is not None
                break
            except socket.timeout:
                continue
            except OSError:
                ended = True
                break
        assert ended, "a byte at a time kept the connection"
        assert is_closed(silent) and is_closed(half)
        # When only its listener is left, the remaining bytes are in the kernel's buffers: less than the four
        # files.
        wait_for(lambda: server.sockets() == 1, "a client that reads nothing keeps its connection")
        assert len(read_all(deaf)) < 4 * len(content("big.bin"))
        for client in (silent, half, deaf, dripping):
            client.close()


def virtual_hosts_have_separate_folders():
    with Server(WORDS, "--vhosts", folder=FOLDER) as server:
        for host, body in [("example.org", b"of example.org\n"), ("EXAMPLE.org:8080", b"of example.org\n"), ("other", b"of default\n"), ("..", b"of default\n"), ("", b"of default\n")]:
            assert split(server.ask(get("/a.txt", f"Host: {host}", host=False)))[2] == body, host
        assert split(server.ask(get("http://example.org/a.txt")))[2] == b"of example.org\n"
        assert split(server.ask(get("/../example.org/a.txt")))[0] == 400


def a_file_that_changes_is_served_as_it_is_now():
    path = os.path.join(FOLDER, "changing")
    for text in (b"first", b"second one"):
        with open(path + ".new", "wb") as file:
            file.write(text)
        os.rename(path + ".new", path)
        until = time.monotonic() + 60
        while ask("/changing")[2] != text:
            assert time.monotonic() < until
            time.sleep(0.05)


def threads_serve_alike_and_the_log_has_every_answer():
    log = os.path.join(FOLDER, "..", os.path.basename(FOLDER) + ".log")
    with Server(WORDS, "--threads", "3", "--access-log", log, folder=FOLDER) as server:
        sizes = [len(server.ask(get("/a.txt", "Connection: close"))) for _ in range(60)]
    with open(log, encoding="ascii") as file:
        assert file.read().split("\n") == [f"200 {size}" for size in sizes] + [""]
    os.unlink(log)


TESTS = [value for name, value in list(globals().items()) if callable(value) and getattr(value, "__module__", "") == "__main__" and name not in ("content", "ask")]


def begin():
    global SERVER
    SERVER = Server(WORDS, folder=FOLDER)
    return SERVER


sys.exit(run_with(begin, TESTS, LABEL, FOLDER))
