#!/usr/bin/env python3
"""Checks that two versions answer alike byte for byte, except for dates. usage: equal.py LABEL STOCK OTHER
[OTHER...]"""

import contextlib
import re
import shutil
import sys
import tempfile

from rig import Server, answered_alike, documents, random_requests, run

LABEL, STOCK, OTHERS = sys.argv[1], sys.argv[2], sys.argv[3:]
FOLDER = tempfile.mkdtemp(prefix="tux-test-")
SERVERS = []
PATHS = ["/a.txt", "/1k.bin", "/empty", "/big.bin", "/indexed/", "/listed/", "/listed", "/many/", "/nothing", "/../x", "/%zz", "/", "/fifo", "/a.txt?q",
         "/with%20space%20%26%20%3Ctag%3E.html", "http://example.org/a.txt", "/" + "d/" * 900, "/" + "x" * 7000, "/" + "x" * 9000]
FIELDS = ["Range: bytes=3-9", "Range: bytes=-2", "Range: bytes=99999-", "If-None-Match: *", "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT",
          "X-Long: " + "v" * 3000, "X-Longer: " + "v" * 15000, "Accept: */*", "Content-Length: 0", "Host: again", "Connection: close", "Connection: keep-alive"]


def masked(answer):
    return re.sub(rb"\r\nDate: [^\r]*", b"", answer)


def closes(path, fields, method):
    return len(path) > 8000 or sum(map(len, fields)) > 16000


def random_connections_are_answered_byte_for_byte_alike():
    requests = lambda seed: random_requests(seed, PATHS, FIELDS, ["GET"] * 6 + ["HEAD", "POST", "BREW"], closes)
    # Several at a time, because a connection mostly waits for its next piece.
    answered_alike(SERVERS, OTHERS, requests, masked, 10)


with contextlib.ExitStack() as stack:
    stack.callback(shutil.rmtree, FOLDER)
    documents(FOLDER)
    for words in [STOCK, *OTHERS]:
        SERVERS.append(stack.enter_context(Server(words.split(), folder=FOLDER)))
    status = run([random_connections_are_answered_byte_for_byte_alike], LABEL)
sys.exit(status)
