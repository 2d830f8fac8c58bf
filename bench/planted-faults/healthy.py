"""A healthy ASGI application for uvicorn: 1 KiB for any GET."""

BODY = b"x" * 1024


async def app(scope, receive, send):
    if scope["type"] == "http":
        headers = [(b"content-length", b"1024")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": BODY})
