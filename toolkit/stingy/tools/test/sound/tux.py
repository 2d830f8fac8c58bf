"""Runs tux under the trace with requests: tux.py TUX TRACE.SO TRACE-FILE"""
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../servers/tux/test"))
from rig import Server, documents, get  # noqa: E402  (the folder above)

tux, library, trace = sys.argv[1:4]
with tempfile.TemporaryDirectory() as folder:
    documents(folder)
    server = Server([tux], "--threads", "2", "--access-log", os.path.join(folder, "log"), folder=folder, env={"LD_PRELOAD": library, "TRACE_FILE": trace})
    try:
        paths = ["/a.txt", "/big.bin", "/indexed/", "/listed/", "/listed", "/many/", "/nothing", "/../x", "/%zz", "/" + "x" * 7000, "/with%20space%20%26%20%3Ctag%3E.html"]
        for turn in range(20):
            for path in paths:
                server.ask(get(path, "Range: bytes=1-2", "If-None-Match: \"%s\"" % ("v" * 100), "X-Long: " + "v" * (turn * 500), "Connection: close"), pieces=1 + turn % 3)
            server.ask(get("/a.txt") * 10)
            server.ask(b"nonsense\r\n\r\n")
            server.ask(get("/a.txt")[:30])
        crowd = [server.connect() for _ in range(300)]
        for client in crowd:
            client.sendall(get("/1k.bin"))
        for client in crowd:
            client.recv(65536)
            client.close()
    finally:
        server.process.send_signal(signal.SIGTERM)
        try:
            server.process.wait(60)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
            sys.exit("tux did not end")
