import type { IncomingMessage, Server, ServerResponse } from 'node:http';

const unmet = new WeakSet<IncomingMessage>();
const held = new WeakMap<IncomingMessage, ServerResponse>();

/** Makes requests with an `Expect` header pass through the same hooks as all others. */
export function acceptExpectations(server: Server): void {
  server.on('checkExpectation', (request, response) => {
    unmet.add(request);
    server.emit('request', request, response);
  });
  server.on('checkContinue', (request, response) => {
    held.set(request, response);
    server.emit('request', request, response);
  });
}

export function isUnmet(request: IncomingMessage): boolean {
  return unmet.has(request);
}

export function continueBody(request: IncomingMessage): void {
  held.get(request)?.writeContinue();
  held.delete(request);
}

/** Whether the client still holds its body back. Its connection then cannot carry another request. */
export function holdsBody(request: IncomingMessage): boolean {
  return held.has(request);
}
