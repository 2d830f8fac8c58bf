// The same server as server.py, by @grpc/grpc-js. usage: node server.js PORT
'use strict';
const grpc = require('@grpc/grpc-js');

const PAUSE_MS = 5;
const asBytes = (value) => value;
const method = (path, responseStream) => ({
  path, responseStream, requestStream: false, requestSerialize: asBytes, requestDeserialize: asBytes,
  responseSerialize: asBytes, responseDeserialize: asBytes,
});
let calls = 0;

const server = new grpc.Server();
server.addService({ unary: method('/sg.Test/Unary', false), stream: method('/sg.Test/Stream', true) }, {
  unary: (call, answer) => {
    calls += 1;
    answer(null, Buffer.from('hello'));
  },
  stream: (call) => {
    calls += 1;
    let number = 0;
    const next = () => {
      if (call.cancelled) return;
      call.write(Buffer.alloc(number, 'm'));
      number += 1;
      if (number < 5) setTimeout(next, PAUSE_MS);
      else call.end();
    };
    setTimeout(next, PAUSE_MS);
  },
});
process.on('SIGTERM', () => {
  server.forceShutdown();
  console.log(`calls ${calls}`);
  process.exit(0);
});
server.bindAsync(`127.0.0.1:${process.argv[2]}`, grpc.ServerCredentials.createInsecure(), (why) => {
  if (why) throw why;
});
