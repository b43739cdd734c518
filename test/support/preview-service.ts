import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage, type RequestListener } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';
import { TrustedProxies } from '../../src/http/client-address.js';
import { GrantedAccess } from '../../src/previews/grants/access.js';
import { PREVIEW_LIMITS } from '../../src/previews/bounds.js';
import { PreviewHosts } from '../../src/previews/host.js';
import { PreviewListener } from '../../src/previews/listener.js';
import { Serving } from '../../src/previews/serve.js';
import type { OpenPort } from '../../src/previews/types.js';
import { openPort } from '../../src/sandboxes/ports/open-port.js';
import type { TestService } from './service.js';

export interface GrantedPreviews {
  port: number;
  close: () => Promise<void>;
}

export const OPEN_HOSTS = () => new PreviewHosts('localhost', 'http', undefined);

/** A listener whose requests are judged by the grants of the service. `app` is the server of each sandbox. */
export async function serveGranted(
  service: TestService,
  hosts: PreviewHosts,
  app: RequestListener,
): Promise<GrantedPreviews> {
  const inner = createServer(app);
  new WebSocketServer({ server: inner }).on('connection', (client) => client.send('hello'));
  await once(inner.listen(0, '127.0.0.1'), 'listening');
  const { port: innerPort } = inner.address() as AddressInfo;
  const { port, close } = await servePorts(service, hosts, async () => {
    const socket = connect({ host: '127.0.0.1', port: innerPort, allowHalfOpen: true });
    await once(socket, 'connect');
    return socket;
  });
  return {
    port,
    async close() {
      inner.closeAllConnections();
      await close();
      inner.close();
    },
  };
}

/** The same before the ports of real sandboxes. Default: through their engine. */
export async function servePorts(
  service: TestService,
  hosts: PreviewHosts,
  open: OpenPort = (place, signal) => openPort(service.ctx, place, signal),
): Promise<GrantedPreviews> {
  const { log } = service.ctx;
  const proxies = new TrustedProxies([]);
  const access = new GrantedAccess(service.ctx);
  const serving = new Serving({
    log,
    hosts,
    access,
    waker: undefined,
    openPort: open,
    proxies,
    limits: PREVIEW_LIMITS,
    meters: service.ctx.meters,
  });
  const listener = new PreviewListener(
    { log, limits: { total: 1_000, each: 1_000 }, proxies, certificate: undefined },
    {
      request: (request, response) => serving.request(request, response),
      upgrade: (request, socket, head) => serving.upgrade(request, socket, head),
    },
  );
  const port = await listener.listen('127.0.0.1', 0);
  hosts.listensAt(port);
  const close = async () => {
    await listener.close();
    serving.close();
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
