// A gRPC server with a method of each kind. Its messages are JSON, so it needs no compiler.
import grpc from '@grpc/grpc-js';

const json = {
  requestSerialize: (value) => Buffer.from(JSON.stringify(value)),
  requestDeserialize: (bytes) => JSON.parse(bytes),
  responseSerialize: (value) => Buffer.from(JSON.stringify(value)),
  responseDeserialize: (bytes) => JSON.parse(bytes),
};
const method = (path, requestStream, responseStream) => ({ path, requestStream, responseStream, ...json });

const server = new grpc.Server();
server.addService(
  {
    greet: method('/test.Programs/Greet', false, false),
    count: method('/test.Programs/Count', false, true),
    sum: method('/test.Programs/Sum', true, false),
    echo: method('/test.Programs/Echo', true, true),
    fail: method('/test.Programs/Fail', false, false),
    never: method('/test.Programs/Never', false, false),
  },
  {
    greet({ request, metadata }, answer) {
      const trailers = new grpc.Metadata();
      trailers.set('x-after', 'trailer');
      answer(null, { hello: request.name, metadata: metadata.getMap() }, trailers);
    },
    count(call) {
      for (let at = 1; at <= call.request.to; at += 1) call.write({ at });
      call.end();
    },
    sum(call, answer) {
      let sum = 0;
      call.on('data', ({ value }) => (sum += value)).on('end', () => answer(null, { sum }));
    },
    echo: (call) => call.on('data', (value) => call.write(value)).on('end', () => call.end()),
    fail: (_call, answer) => answer({ code: grpc.status.FAILED_PRECONDITION, details: 'not so: 100 % "no"' }),
    never: () => undefined,
  },
);
server.bindAsync('127.0.0.1:50051', grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
});
