"""A threaded HTTP/1.1 server from Python's standard library, serving the testbed's documents.

It has one thread per connection (one process with --fork), keep-alive, and one send per response. With
--access-log it writes a line per response: status and sent bytes with the header.

"""

import argparse
import http.server
import os
import pwd
import socket
import socketserver
import threading


class Documents(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Header and body are sent together: the handler writes into a buffer that handle_one_request flushes.
    wbufsize = 1 << 17
    disable_nagle_algorithm = True

    def do_GET(self):
        body = self.server.documents.get(self.path)
        status = 200 if body is not None else 404
        body = body if body is not None else b"not found\n"
        head = (
            f"HTTP/1.1 {status} {self.responses[status][0]}\r\n"
            f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        payload = head if self.command == "HEAD" else head + body
        self.wfile.write(payload)
        self.wfile.flush()
        self.server.log_response(status, len(payload))

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address, documents, access_log):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Documents)
        self.documents = documents
        self.access_log = access_log
        self.access_log_lock = threading.Lock()

    def log_response(self, status, sent_bytes):
        if self.access_log:
            with self.access_log_lock:
                self.access_log.write(f"{status} {sent_bytes}\n")
                self.access_log.flush()

    def handle_error(self, request, client_address):
        # A client that disconnects is not a server error.
        pass


class ForkingServer(socketserver.ForkingMixIn, Server):
    """The mixin's process_request precedes that of the threads."""

    max_children = 1000


def read_documents(folder):
    documents = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            documents["/" + name] = file.read()
    return documents


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--documents", required=True)
    parser.add_argument("--access-log")
    parser.add_argument("--fork", action="store_true", help="a process a connection instead of a thread")
    parser.add_argument("--user", help="drop to this user once the port and the log are open")
    options = parser.parse_args()
    access_log = open(options.access_log, "a", encoding="ascii") if options.access_log else None
    kind = ForkingServer if options.fork else Server
    server = kind((options.address, options.port), read_documents(options.documents), access_log)
    if options.user:
        user = pwd.getpwnam(options.user)
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    server.serve_forever()


if __name__ == "__main__":
    main()
