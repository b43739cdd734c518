import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the ports that Linux gives to connections: 32,768 to 60,999, unless `net.ipv4.ip_local_port_range` differs. */
const LOWEST = 12_000;
const COUNT = 6_000;
const given = new Set<number>();

/** A port on 127.0.0.1 that nobody has. It stays so until its owner listens, since no connection takes it. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = LOWEST + Math.floor(Math.random() * COUNT);
    if (given.has(port)) continue;
    given.add(port);
    const server = createServer();
    const heard = once(server, 'listening').then(
      () => true,
      () => false,
    );
    server.listen(port, '127.0.0.1');
    if (!(await heard)) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
}
