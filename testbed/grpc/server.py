#!/usr/bin/env python3
"""A gRPC server on grpcio with `sg.Test/Unary` and `sg.Test/Stream`, which answers five messages, the first one empty.

usage: server.py PORT     at SIGTERM it prints the number of calls of each method
"""
import signal
import sys
import threading
import time
from concurrent import futures

import grpc

PAUSE_S = 0.005
calls, lock, end = 0, threading.Lock(), threading.Event()


def count():
    global calls
    with lock:
        calls += 1


def unary(_request, _context):
    count()
    return b"hello"


def stream(_request, _context):
    count()
    for number in range(5):
        time.sleep(PAUSE_S)
        yield b"m" * number


class Methods(grpc.GenericRpcHandler):
    """Any other method is unimplemented."""

    def service(self, details):
        if details.method == "/sg.Test/Unary":
            return grpc.unary_unary_rpc_method_handler(unary)
        if details.method == "/sg.Test/Stream":
            return grpc.unary_stream_rpc_method_handler(stream)
        return None


server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[Methods()])
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
signal.signal(signal.SIGTERM, lambda *_: end.set())
server.start()
end.wait()
server.stop(1).wait()
print(f"calls {calls}", flush=True)
