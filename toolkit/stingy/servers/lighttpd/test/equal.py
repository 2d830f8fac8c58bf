#!/usr/bin/env python3
"""Checks that the versions of lighttpd answer alike byte for byte, except for dates. usage: equal.py LABEL
STOCK OTHER [OTHER...]"""

import concurrent.futures
import contextlib
import random
import re
import resource
import shutil
import sys
import tempfile
import time

from lighttpd import Lighttpd
from rig import answered_alike, documents, get, is_closed, random_requests, run

LABEL, STOCK, OTHERS = sys.argv[1], sys.argv[2], sys.argv[3:]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
FOLDER = tempfile.mkdtemp(prefix="lighttpd-test-")
SERVERS = []
PATHS = ["/a.txt", "/1k.bin", "/empty", "/big.bin", "/indexed/", "/listed/", "/listed", "/nothing", "/../x", "/%zz", "/", "/a.txt?q", "/old/a.txt", "/sent/a.txt",
         "/with%20space%20%26%20%3Ctag%3E.html", "http://example.org/a.txt", "/" + "d/" * 900, "/" + "x" * 7000]
FIELDS = ["Range: bytes=3-9", "Range: bytes=-2", "Range: bytes=99999-", "If-None-Match: *", "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT", "X-Long: " + "v" * 3000,
          "Accept: */*", "Content-Length: 0", "Host: again", "Connection: close", "Connection: keep-alive", "Expect: 100-continue", "Upgrade: h2c"]
MORE = """
url.rewrite-once = ( "^/old/(.*)" => "/$1" )
url.redirect = ( "^/sent/(.*)" => "/$1" )
setenv.add-response-header = ( "X-Served" => "yes" )
expire.url = ( "/a.txt" => "access plus 0 seconds" )
"""


def masked(answer):
    return re.sub(rb"\r\n(Date|Expires|Last-Modified): [^\r]*", rb"\r\n\1: -", answer)


def closes(path, fields, method):
    return method == "POST" or path in ("/../x", "/%zz")


def random_connections_are_answered_byte_for_byte_alike():
    requests = lambda seed: random_requests(seed, PATHS, FIELDS, ["GET"] * 6 + ["HEAD", "POST", "OPTIONS"], closes)
    # Many at a time, because some wait until lighttpd checks them, once a second.
    answered_alike(SERVERS, OTHERS, requests, masked, 60)


def connections_that_wait_between_requests_are_answered_alike():
    """Many at once, with few requests each: between two requests a connection is cold in one version and not in the others."""
    crowds = [[server.connect() for _ in range(60)] for server in SERVERS]
    chosen = random.Random(7)
    for turn in range(300):
        i, path = chosen.randrange(60), chosen.choice(["/a.txt", "/1k.bin", "/nothing", "/indexed/", "/old/a.txt", "/listed/"])
        request, cut = get(path, "X-Turn: %d" % turn, method=chosen.choice(["GET", "HEAD"])), chosen.randrange(1, 40)
        answers = []
        for crowd in crowds:
            crowd[i].sendall(request[:cut])
            if turn % 3 == 0:
                time.sleep(0.003)
            crowd[i].sendall(request[cut:])
            got = b""
            while b"\r\n\r\n" not in got:
                got += crowd[i].recv(65536)
            length = re.search(rb"Content-Length: (\d+)", got)
            while request.startswith(b"GET") and length and len(got.partition(b"\r\n\r\n")[2]) < int(length.group(1)):
                got += crowd[i].recv(65536)
            if b"chunked" in got and request.startswith(b"GET"):
                while not got.endswith(b"0\r\n\r\n"):
                    got += crowd[i].recv(65536)
            answers.append(masked(got))
        assert len(set(answers)) == 1, f"turn {turn}, {path}: {answers}"
    for crowd in crowds:
        for client in crowd:
            client.close()


def idle_connections_are_closed_in_time():
    """After a first answer (keep-alive) and before any request (read timeout): both 1 s in the configuration, checked each second."""
    def closes(binary):
        with Lighttpd(binary, FOLDER, idle_s=1) as server:
            silent, kept = server.connect(), server.connect()
            kept.sendall(get("/a.txt"))
            assert b"hello" in kept.recv(65536)
            assert is_closed(kept) and is_closed(silent), f"{binary}: an idle connection stays"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(closes, (STOCK, *OTHERS)))


def the_status_page_knows_connections_that_wait():
    pages = []
    for binary in (STOCK, *OTHERS):
        with Lighttpd(binary, FOLDER, ["mod_status"], 'status.status-url = "/status"\n') as server:
            waiting = [server.connect() for _ in range(5)]
            for client in waiting:
                client.sendall(get("/a.txt"))
                assert b"hello" in client.recv(65536)
            page = server.ask(get("/status?auto", "Connection: close"))
            # Sorted, because the order differs where connections were cold.
            pages.append([sorted(line) for line in re.findall(rb"(BusyServers: \d+|IdleServers: \d+|Scoreboard: [^_]*)", page)])
            waiting[0].sendall(get("/a.txt"))
            assert b"hello" in waiting[0].recv(65536)
            for client in waiting:
                client.close()
    assert all(page == pages[0] and len(page) == 3 for page in pages), pages


with contextlib.ExitStack() as stack:
    stack.callback(shutil.rmtree, FOLDER)
    documents(FOLDER)
    for binary in [STOCK, *OTHERS]:
        SERVERS.append(stack.enter_context(Lighttpd(binary, FOLDER, ["mod_redirect"], MORE)))
    status = run([random_connections_are_answered_byte_for_byte_alike, connections_that_wait_between_requests_are_answered_alike,
                  idle_connections_are_closed_in_time, the_status_page_knows_connections_that_wait], LABEL)
sys.exit(status)
