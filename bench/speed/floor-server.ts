/**
 * The least code that answers: `node floor-server.js <plan file>` prints its address and serves until it is stopped.
 * The answers are bytes in memory, or the text that a prepared statement returns.
 */
import { readFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import type { Bodies, Queries } from './floors.js';

const plan = JSON.parse(readFileSync(process.argv[2]!, 'utf8')) as Bodies | Queries;

const answer = 'url' in plan ? await fromDatabase(plan) : fromMemory(plan);

function fromMemory({ bodies }: Bodies) {
  const buffers = new Map(Object.entries(bodies).map(([path, body]) => [path, Buffer.from(body)]));
  return (path: string, response: ServerResponse) => {
    send(response, buffers.get(path)!);
  };
}

/**
 * Two connections with pipelined statements take a third less CPU time here than a pool. The items of a page are
 * rows, joined here: PostgreSQL takes almost twice the time to join them.
 */
async function fromDatabase({ url, queries }: Queries) {
  const options = '-c jit=off -c timezone=UTC';
  const clients = [0, 1].map(() => new pg.Client({ connectionString: url, pipeline: true, options }));
  for (const client of clients) await client.connect();
  const known = new Map(Object.entries(queries));
  let next = 0;
  return (path: string, response: ServerResponse) => {
    textOf(known.get(path)!).then(
      (text) => send(response, Buffer.from(text)),
      (error: unknown) => response.destroy(error as Error),
    );
  };

  async function textOf({ page, ...query }: Queries['queries'][string]): Promise<string> {
    const client = clients[(next = 1 - next)]!;
    const { rows } = await client.query<[string], unknown[]>({ ...query, rowMode: 'array' });
    const items = rows.map(([body]) => body).join(',');
    return page ? `{"data":[${items}],"has_more":true,"next_cursor":null}` : items;
  }
}

function send(response: ServerResponse, body: Buffer): void {
  response.writeHead(200, {
    'content-type': 'application/json; charset=utf-8',
    'content-length': body.length,
  });
  response.end(body);
}

const server = createServer((request, response) => answer(request.url!, response));
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ address: `http://127.0.0.1:${port}` }));
});
