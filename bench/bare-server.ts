/**
 * The baseline of the service: the least code that sends rows of a table as JSON, with a cursor, a string for each
 * row and a socket. `node bare-server.js <database URL>` prints its address and serves until it is killed.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { openPool } from '../src/db/pool.js';
import { rowsOf } from '../src/db/rows.js';
import { inTransaction } from '../src/db/transaction.js';

const pool = openPool({ url: process.argv[2]! }, () => undefined);

async function send(response: ServerResponse): Promise<void> {
  response.setHeader('content-type', 'application/json');
  await inTransaction(pool, async (tx) => {
    const query = {
      text: 'select day::text, sandbox_id, vcpu_seconds, memory_mib_seconds, disk_mib_seconds from bare_rows',
      values: [],
    };
    let before = '{"rows":[';
    for await (const rows of rowsOf<[string, string, number, number, number]>(tx, 'bare', query)) {
      const lines = rows.map(([day, sandbox_id, vcpu_seconds, mem_mib_seconds, disk_mib_seconds]) =>
        JSON.stringify({
          day: `${day}T00:00:00Z`,
          sandbox_id,
          vcpu_seconds,
          mem_mib_seconds,
          disk_mib_seconds,
        }),
      );
      if (!response.write(before + lines.join(','))) await once(response, 'drain');
      before = ',';
    }
    response.end(']}');
  });
}

const server = createServer((_, response) => {
  send(response).catch((error: unknown) => response.destroy(error as Error));
});
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ address: `http://127.0.0.1:${port}` }));
});
