"""A keep-alive HTTP server on one of Python's selectors: selector_server.py poll|select|epoll PORT"""
import resource
import selectors
import socket
import sys

resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
kind = {"poll": selectors.PollSelector, "select": selectors.SelectSelector, "epoll": selectors.EpollSelector}
selector = kind[sys.argv[1]]()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[2])))
listener.listen(4096)
listener.setblocking(False)
selector.register(listener, selectors.EVENT_READ)
body = b"x" * 1259
answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1259\r\n\r\n" + body
while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            try:
                while True:
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    selector.register(connection, selectors.EVENT_READ)
            except BlockingIOError:
                continue
        try:
            data = key.fileobj.recv(65536)
        except OSError:
            data = b""
        if data:
            key.fileobj.send(answer)
        else:
            selector.unregister(key.fileobj)
            key.fileobj.close()
