"""A lighttpd of one of the versions, on a free port with the documents of tux's tests; the rest is theirs, too."""

import os
import resource
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tux", "test"))
from rig import PATIENCE_S, Server, free_port  # noqa: E402  (the folder above)

CONFIGURATION = """
server.document-root = "{documents}"
server.bind = "127.0.0.1"
server.port = {port}
server.errorlog = "{scratch}/error.log"
server.max-fds = {descriptors}
server.max-connections = {connections}
server.listen-backlog = 4096
server.max-keep-alive-requests = 1000000
server.max-keep-alive-idle = {idle_s}
server.max-read-idle = {idle_s}
server.max-write-idle = 600
server.feature-flags += ( "server.h2proto" => "enable", "server.h2c" => "enable" )
index-file.names = ( "index.html" )
dir-listing.activate = "enable"
mimetype.assign = ( ".html" => "text/html", ".txt" => "text/plain", ".bin" => "application/octet-stream" )
server.modules = ( {modules} )
{more}
"""


class Lighttpd(Server):
    """`connections`: the most at once; fewer where the limit of descriptors says so."""

    def __init__(self, binary, folder, modules=(), more="", idle_s=120, connections=12000, env=None, before=()):
        self.folder, self.port = folder, free_port()
        self.scratch = tempfile.TemporaryDirectory(prefix="lighttpd-test-")
        self.errors = tempfile.TemporaryFile()
        path = os.path.join(self.scratch.name, "lighttpd.conf")
        # lighttpd takes twice as many descriptors as connections.
        descriptors = min(2 * connections + 500, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(documents=folder, port=self.port, scratch=self.scratch.name, descriptors=descriptors, connections=min(connections, descriptors // 2), idle_s=idle_s,
                                            modules=", ".join(f'"{name}"' for name in ("mod_setenv", "mod_expire", "mod_rewrite", *modules)), more=more))
        environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:halt_on_error=1", UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")
        self.process = subprocess.Popen([*before, binary, "-D", "-f", path], stderr=self.errors, stdout=subprocess.DEVNULL, env=dict(environment, **(env or {})))
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise AssertionError("the server does not start: " + self.said()) from None
                time.sleep(0.02)

    def log(self):
        with open(os.path.join(self.scratch.name, "error.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self):
        """Ends it. Status 1 is lighttpd's when connections were open; what a sanitizer says is on standard error."""
        self.process.terminate()
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = "killed: it did not end"
        said = self.said()
        self.errors.close()
        self.scratch.cleanup()
        assert status in (0, 1) and not said, f"status {status}: {said[-4000:]}"
