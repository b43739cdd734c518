import { createServer } from 'node:https';
import {
  Agent,
  request as sendRequest,
  type IncomingMessage,
  type RequestOptions,
  type ServerResponse,
} from 'node:http';
import { buffer } from 'node:stream/consumers';
import type { TLSSocket } from 'node:tls';
import { expect, it } from 'vitest';
import { identity, listen, openGate, NAME } from '../support/interceptor.js';

async function ask(socket: TLSSocket, options: RequestOptions = {}, body?: string | Buffer) {
  const agent = new Agent({ keepAlive: true });
  Object.assign(agent, { createConnection: () => socket });
  const request = sendRequest({
    agent,
    headers: { host: NAME },
    ...options,
  });
  request.end(body);
  const response = await new Promise<IncomingMessage>((resolve, reject) =>
    request.once('response', resolve).once('error', reject),
  );
  return { response, status: response.statusCode, text: (await buffer(response)).toString() };
}

/** A server of HTTP/1.1. */
function serve(answer: (request: IncomingMessage, response: ServerResponse) => Promise<void> | void) {
  return createServer(identity(), (request, response) => void answer(request, response));
}

it('forwards HTTP/1.1, with its body and its fields as they came', async () => {
  const server = serve(async (request, response) => {
    const body = await buffer(request);
    response.writeHead(201, 'Made', [
      ['Set-Cookie', 'a=1'],
      ['Set-Cookie', 'b=2'],
      ['X-Seen', `${request.method} ${request.url} ${body.length}`],
      ['X-Fields', JSON.stringify(request.rawHeaders)],
    ]);
    response.end(body);
  });
  const gate = await openGate({ port: await listen(server) });
  const socket = await gate.tls();
  const { response, status, text } = await ask(
    socket,
    { method: 'POST', path: '/a?b=c', headers: { host: NAME, 'X-Case': 'Kept', 'x-two': ['1', '2'] } },
    'hello',
  );
  expect({ status, text, message: response.statusMessage }).toEqual({
    status: 201,
    text: 'hello',
    message: 'Made',
  });
  expect(response.headers['set-cookie']).toEqual(['a=1', 'b=2']);
  expect(response.headers['x-seen']).toBe('POST /a?b=c 5');
  const fields = JSON.parse(response.headers['x-fields'] as string) as string[];
  expect(fields).toEqual([
    'host',
    NAME,
    'X-Case',
    'Kept',
    'x-two',
    '1',
    'x-two',
    '2',
    'Content-Length',
    '5',
    'Connection',
    'keep-alive',
  ]);
  const again = await ask(socket, { method: 'GET', path: '/again' });
  expect(again.response.headers['x-seen']).toBe('GET /again 0');
  expect(gate.denials).toEqual([]);
});
