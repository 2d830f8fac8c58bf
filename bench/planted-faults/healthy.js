// A healthy Node server: 1 KiB for any GET.
const body = Buffer.alloc(1024, "x");
require("http")
  .createServer((request, response) => response.writeHead(200, { "Content-Length": body.length }).end(body))
  .listen(Number(process.argv[2]), "0.0.0.0", 4096);
