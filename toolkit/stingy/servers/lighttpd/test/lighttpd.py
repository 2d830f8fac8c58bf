"""A lighttpd of one of the versions, with the documents and requests of tux's tests.

As a program it runs their crowd (tux/test/crowd.py). usage: lighttpd.py LABEL CONNECTIONS LIGHTTPD"""

import os
import resource
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tux", "test"))
from crowd import run_crowd  # noqa: E402  (the folder above)
from rig import Server, claim_port  # noqa: E402

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
    """`connections`: the most at once, as far as the limit of descriptors permits."""

    # lighttpd ends with 1 when connections were open. A sanitizer's report is on standard error.
    GOOD_ENDS = (0, 1)

    def __init__(self, binary, folder, modules=(), more="", idle_s=120, connections=12000, env=None, before=()):
        self.folder = folder
        self.port, self.claim = claim_port()
        self.scratch = tempfile.TemporaryDirectory(prefix="lighttpd-test-")
        path = os.path.join(self.scratch.name, "lighttpd.conf")
        # lighttpd takes twice as many descriptors as connections.
        descriptors = min(2 * connections + 500, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(documents=folder, port=self.port, scratch=self.scratch.name, descriptors=descriptors, connections=min(connections, descriptors // 2), idle_s=idle_s,
                                            modules=", ".join(f'"{name}"' for name in ("mod_setenv", "mod_expire", "mod_rewrite", *modules)), more=more))
        self.start([*before, binary, "-D", "-f", path], env)

    def log(self):
        with open(os.path.join(self.scratch.name, "error.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self):
        try:
            super().end()
        finally:
            self.scratch.cleanup()


if __name__ == "__main__":
    sys.exit(run_crowd(sys.argv[1], int(sys.argv[2]), lambda folder, connections: Lighttpd(sys.argv[3], folder, connections=connections)))
