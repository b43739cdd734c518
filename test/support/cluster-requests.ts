import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest, type RequestOptions } from 'node:https';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import type { Cluster } from '../../src/engines/kubernetes/client.js';

/** A right as `<namespace> <group>/<resource> <verb>`. The namespace of an object without one is `*`. */
export type Right = string;

/**
 * A proxy in front of the API server. It records the rights that requests need, and is reached with the token of an
 * account.
 */
export async function recordRights(cluster: Cluster, token: string) {
  const used = new Set<Right>();
  const refused: string[] = [];
  const target = new URL(cluster.server);
  const options: RequestOptions = {};
  await cluster.config.applyToHTTPSOptions(options);
  const forward = ({ method, url, headers }: IncomingMessage) => {
    const right = rightOf(method ?? '', new URL(url ?? '', target));
    if (right !== undefined) used.add(right);
    const { ca } = options;
    const to = {
      host: target.hostname,
      port: target.port,
      method,
      path: url,
      headers: { ...headers, host: target.host },
    };
    return target.protocol === 'https:' ? httpsRequest({ ...to, ...(ca ? { ca } : {}) }) : httpRequest(to);
  };
  const server = createServer((incoming, outgoing) => {
    const onward = forward(incoming);
    onward.on('response', (answer) => {
      if (answer.statusCode === 403) refused.push(`${incoming.method} ${incoming.url}`);
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      // A watch may have nothing to say for long.
      outgoing.flushHeaders();
      answer.pipe(outgoing);
    });
    onward.on('error', () => outgoing.destroy());
    outgoing.on('close', () => onward.destroy());
    incoming.pipe(onward);
  });
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => sockets.add(socket));
  server.on('upgrade', (incoming: IncomingMessage, client: Socket, head: Buffer) => {
    const onward = forward(incoming);
    client.on('error', () => onward.destroy());
    onward.on('response', (answer) => {
      if (answer.statusCode === 403) refused.push(`${incoming.method} ${incoming.url}`);
      client.end(`HTTP/1.1 ${answer.statusCode} \r\n\r\n`);
    });
    onward.on('upgrade', (answer, upstream) => {
      const lines = Object.entries(answer.headers).map(([name, value]) => `${name}: ${String(value)}`);
      client.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join('\r\n')}\r\n\r\n`);
      upstream.write(head);
      upstream.pipe(client).pipe(upstream);
      for (const end of [upstream, client])
        end.on('error', () => [upstream, client].map((one) => one.destroy()));
    });
    onward.on('error', () => client.destroy());
    onward.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-kubeconfig-'));
  const kubeconfig = join(directory, 'config');
  const { port } = server.address() as AddressInfo;
  writeFileSync(
    kubeconfig,
    stringify({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'proxy',
      clusters: [
        { name: 'proxy', cluster: { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true } },
      ],
      users: [{ name: 'account', user: { token } }],
      contexts: [{ name: 'proxy', context: { cluster: 'proxy', user: 'account' } }],
    }),
  );
  return {
    kubeconfig,
    used,
    refused,
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      rmSync(directory, { recursive: true });
    },
  };
}

const VERBS: Record<string, string> = { POST: 'create', PUT: 'update', PATCH: 'patch', DELETE: 'delete' };

function rightOf(method: string, { pathname, searchParams }: URL): Right | undefined {
  const parts = pathname.split('/').slice(1);
  if (parts[0] !== 'api' && parts[0] !== 'apis') return undefined;
  const group = parts[0] === 'api' ? '' : parts[1]!;
  let rest = parts.slice(parts[0] === 'api' ? 2 : 3);
  let namespace = '*';
  if (rest[0] === 'namespaces') {
    namespace = rest[1] ?? '*';
    if (rest.length > 2) rest = rest.slice(2);
  }
  const [resource = '', name, subresource] = rest;
  const reads = name !== undefined ? 'get' : searchParams.get('watch') === 'true' ? 'watch' : 'list';
  const kind = subresource === undefined ? resource : `${resource}/${subresource}`;
  return `${namespace} ${group}/${kind} ${VERBS[method] ?? reads}`;
}
