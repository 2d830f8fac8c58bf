#!/usr/bin/env python3
"""Runs lighttpd under the trace with requests of many kinds. usage: sound.py LIGHTTPD TRACE.SO TRACE-FILE"""

import shutil
import sys
import tempfile

from lighttpd import Lighttpd
from rig import documents, get

BINARY, LIBRARY, TRACE = sys.argv[1:4]
FOLDER = tempfile.mkdtemp(prefix="lighttpd-test-")
documents(FOLDER)
MORE = """
url.rewrite-once = ( "^/old/(.*)" => "/$1" )
setenv.add-response-header = ( "X-Served" => "yes" )
deflate.mimetypes = ( "text/" )
deflate.allowed-encodings = ( "gzip" )
status.status-url = "/status"
$HTTP["url"] =~ "^/listed" { server.tag = "other" }
""".replace('$HTTP["url"] =~ "^/listed"', '$HTTP["host"] == "other"')
try:
    with Lighttpd(BINARY, FOLDER, ["mod_deflate", "mod_status", "mod_accesslog"], MORE, env={"LD_PRELOAD": LIBRARY, "TRACE_FILE": TRACE, "TRACE_CALLERS": "1"}) as server:
        for turn in range(10):
            for path in ("/a.txt", "/big.bin", "/indexed/", "/listed/", "/listed", "/many/", "/nothing", "/old/a.txt", "/status", "/" + "x" * 6000):
                server.ask(get(path, "Accept-Encoding: gzip", "X-Long: " + "v" * (turn * 500), "Range: bytes=0-2" if turn % 2 else "Accept: */*", "Connection: close"), pieces=1 + turn % 3)
            server.ask(get("/a.txt") * 10 + get("/a.txt", "Connection: close"))
            server.ask(b"nonsense\r\n\r\n")
            server.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\3\1\5\0\0\0\1\x82\x84\x86")
        crowd = [server.connect() for _ in range(300)]
        for client in crowd:
            client.sendall(get("/1k.bin"))
        for client in crowd:
            client.recv(65536)
            client.close()
finally:
    shutil.rmtree(FOLDER)
