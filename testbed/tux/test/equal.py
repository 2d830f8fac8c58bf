#!/usr/bin/env python3
"""Two versions answer byte for byte alike, dates aside. usage: equal.py LABEL STOCK OTHER [OTHER...]"""

import concurrent.futures
import random
import re
import shutil
import sys
import tempfile

from rig import Server, documents, get, run

LABEL, STOCK, OTHERS = sys.argv[1], sys.argv[2], sys.argv[3:]
FOLDER = tempfile.mkdtemp(prefix="tux-test-")
documents(FOLDER)
SERVERS = []
PATHS = ["/a.txt", "/1k.bin", "/empty", "/big.bin", "/indexed/", "/listed/", "/listed", "/many/", "/nothing", "/../x", "/%zz", "/", "/fifo", "/a.txt?q",
         "/with%20space%20%26%20%3Ctag%3E.html", "http://example.org/a.txt", "/" + "d/" * 900, "/" + "x" * 7000, "/" + "x" * 9000]
FIELDS = ["Range: bytes=3-9", "Range: bytes=-2", "Range: bytes=99999-", "If-None-Match: *", "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT",
          "X-Long: " + "v" * 3000, "X-Longer: " + "v" * 15000, "Accept: */*", "Content-Length: 0", "Host: again", "Connection: close", "Connection: keep-alive"]


def masked(answer):
    return re.sub(rb"\r\nDate: [^\r]*", b"", answer)


def random_requests(seed):
    chosen = random.Random(seed)
    out = b""
    for _ in range(chosen.randint(1, 12)):
        path, fields, version = chosen.choice(PATHS), chosen.sample(FIELDS, chosen.choice([0, 0, 0, 1, 2])), chosen.choice(["1.1"] * 8 + ["1.0"])
        out += get(path, *fields, method=chosen.choice(["GET"] * 6 + ["HEAD", "POST", "BREW"]), version=version)
        # What follows a request that ends the connection meets a closed one, sooner or later.
        if version == "1.0" or len(path) > 8000 or sum(map(len, fields)) > 16000 or {"Connection: close", "Host: again"} & set(fields):
            break
    if chosen.random() < 0.5 and out.count(b"HTTP/1.") == 1:
        at = chosen.randrange(len(out))
        out = out[:at] + bytes([chosen.randrange(256)]) + out[at + 1:]
    return out, chosen.choice([1, 1, 3, 10])


def answers_of(seed):
    requests, pieces = random_requests(seed)
    return [masked(server.ask(requests, pieces)) for server in SERVERS]


def random_connections_are_answered_byte_for_byte_alike():
    # Several at a time: a connection mostly waits, for its next piece.
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        for seed, (expected, *others) in enumerate(pool.map(answers_of, range(400))):
            for name, answer in zip(OTHERS, others):
                assert answer == expected, f"{name} differs with seed {seed}: {random_requests(seed)[0][:200]!r}\n{expected[:300]!r}\n{answer[:300]!r}"


try:
    for words in [STOCK, *OTHERS]:
        SERVERS.append(Server(words.split(), folder=FOLDER))
    status = run([random_connections_are_answered_byte_for_byte_alike], LABEL)
finally:
    for server in SERVERS:
        server.end()
    shutil.rmtree(FOLDER)
sys.exit(status)
