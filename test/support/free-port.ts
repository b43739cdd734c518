import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the ports that Linux gives to connections: 32,768 to 60,999, unless `net.ipv4.ip_local_port_range` differs. */
const LOWEST = 12_000;
/** Each process of a run has its own ports. The main process has no number. */
const EACH = 1_500;
const PROCESSES = 5;
const first = LOWEST + (Number(process.env['VITEST_POOL_ID'] ?? 0) % PROCESSES) * EACH;
/** Two runs at the same time begin at different ports. */
let next = Math.floor(Math.random() * EACH);

/** A port on 127.0.0.1 that nobody has. It stays so until its owner listens, since no connection takes it. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = first + (next % EACH);
    next += 1;
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
