import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { WebSocketServer } from 'ws';
import { TrustedProxies } from '../../src/http/client-address.js';
import { GrantedAccess } from '../../src/previews/grants/access.js';
import { PreviewHosts } from '../../src/previews/host.js';
import { PreviewListener } from '../../src/previews/listener.js';
import { readHost } from '../../src/previews/read-host.js';
import { RESERVED_PATH, type PreviewRequest, type PreviewResponse } from '../../src/previews/types.js';
import { answerError } from '../../src/previews/answer.js';
import { ApiError } from '../../src/http/errors.js';
import type { TestService } from './service.js';

/** The server of a sandbox. It need not be one: these tests are about grants. */
export type App = (request: PreviewRequest, response: PreviewResponse) => void;

export interface GrantedPreviews {
  port: number;
  close: () => Promise<void>;
}

export const OPEN_HOSTS = () => new PreviewHosts('localhost', 'http', undefined);

/** A listener whose requests are judged by the grants of the service, and then reach `app`. A revocation cuts them. */
export async function serveGranted(
  service: TestService,
  hosts: PreviewHosts,
  app: App,
): Promise<GrantedPreviews> {
  const access = new GrantedAccess(service.ctx);
  const answer = async (request: PreviewRequest, response: PreviewResponse) => {
    const host = readHost(hosts, request);
    if (request.url!.startsWith(RESERVED_PATH)) return access.serve(host, request, response);
    const judged = await access.judge(host, request.headers);
    if ('refused' in judged) return access.refuse(host, judged.refused, request, response);
    const cut = () => response.destroy();
    judged.signal.addEventListener('abort', cut);
    response.once('close', () => judged.signal.removeEventListener('abort', cut));
    app(request, response);
  };
  const handle = (request: PreviewRequest, response: PreviewResponse) =>
    void answer(request, response).catch((error: unknown) =>
      answerError(request, response, error instanceof ApiError ? error : new ApiError('internal_error')),
    );
  const sockets = new WebSocketServer({ noServer: true });
  const upgrade = async (request: IncomingMessage, socket: Socket, head: Buffer) => {
    const judged = await access.judge(readHost(hosts, request), request.headers);
    if ('refused' in judged) return void socket.destroy();
    judged.signal.addEventListener('abort', () => socket.destroy());
    sockets.handleUpgrade(request, socket, head, (client) => client.send('hello'));
  };
  const listener = new PreviewListener(
    {
      log: service.ctx.log,
      limits: { total: 1_000, each: 1_000 },
      proxies: new TrustedProxies([]),
      certificate: undefined,
    },
    { request: handle, upgrade: (request, socket, head) => void upgrade(request, socket, head) },
  );
  const port = await listener.listen('127.0.0.1', 0);
  hosts.listensAt(port);
  const close = async () => {
    await listener.close();
    await access.close();
  };
  return { port, close };
}

export interface Asked {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
}

export async function askPreview(
  port: number,
  url: string,
  { method = 'GET', headers = {}, body }: Asked = {},
): Promise<{ status: number; headers: IncomingMessage['headers']; text: string }> {
  const { host, pathname, search } = new URL(url);
  const request = httpRequest({
    host: '127.0.0.1',
    port,
    method,
    path: pathname + search,
    headers: { host, ...headers },
    agent: false,
  });
  request.end(body);
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of answer.setEncoding('utf8')) text += String(chunk);
  return { status: answer.statusCode!, headers: answer.headers, text };
}
