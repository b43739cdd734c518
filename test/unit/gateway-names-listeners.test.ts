import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { serveTcp, serveUdp, type AnswerQuery } from '../../src/gateway/dns-listeners.js';
import { gatedNames, queryOf, settingsOf } from '../support/gated-names.js';
import { a, startNameServer } from '../support/stand-in-resolver.js';

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** The name server of a sandbox whose address is the loopback. */
async function serve() {
  const upstream = await startNameServer(({ name }) => ({
    answers: Array.from({ length: name.startsWith('many') ? 100 : 2 }, (_, at) =>
      a(name, `93.184.215.${at}`),
    ),
  }));
  const dns = { nameservers: [`127.0.0.1:${upstream.port}`] };
  const { server } = gatedNames(settingsOf({ default_egress: 'allow' }, dns, { address: '127.0.0.1' }));
  const answer: AnswerQuery = (...query) => server.handle(...query);
  const tcp = serveTcp(answer);
  tcp.listen(0, '127.0.0.1');
  await once(tcp, 'listening');
  const { port } = tcp.address() as AddressInfo;
  const udp = serveUdp(answer);
  udp.bind(port, '127.0.0.1');
  await once(udp, 'listening');
  closers.push(
    () => udp.close(),
    () => tcp.close(),
    () => upstream.close(),
  );
  return port;
}

function framed(query: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(query.length);
  return Buffer.concat([length, query]);
}

/** The ids of the answers, and the number of their bytes. */
async function answersOf(socket: Socket, count: number): Promise<Map<number, number>> {
  const answers = new Map<number, number>();
  let held = Buffer.alloc(0);
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    held = Buffer.concat([held, chunk]);
    while (held.length >= 2 && held.length >= 2 + held.readUInt16BE(0)) {
      const length = held.readUInt16BE(0);
      answers.set(held.readUInt16BE(2), length);
      held = held.subarray(2 + length);
    }
    if (answers.size === count) break;
  }
  return answers;
}

it('serves a resolver of a language, which asks by UDP and then by TCP', async () => {
  const resolver = new Resolver();
  resolver.setServers([`127.0.0.1:${await serve()}`]);
  const [few, many, six] = await Promise.all([
    resolver.resolve4('www.example.com'),
    resolver.resolve4('many.example.com'),
    resolver.resolve6('www.example.com').catch((error: NodeJS.ErrnoException) => error.code),
  ]);
  expect(few).toHaveLength(2);
  expect(many).toHaveLength(100);
  expect(six).toBe('ENODATA');
});

it('serves several queries of a TCP connection, however they are cut', async () => {
  const socket = connect(await serve(), '127.0.0.1');
  const queries = Array.from({ length: 40 }, (_, id) => framed(queryOf(`n${id}.example.com`, 'A', { id })));
  const bytes = Buffer.concat(queries);
  for (let at = 0; at < 60; at += 1) {
    socket.write(bytes.subarray(at, at + 1));
    await new Promise(setImmediate);
  }
  socket.write(bytes.subarray(60));
  const answers = await answersOf(socket, 40);
  expect([...answers.keys()].toSorted((one, other) => one - other)).toEqual(queries.map((_, id) => id));
});

it('resets a TCP connection that announces a query of 60,000 bytes', async () => {
  const socket = connect(await serve(), '127.0.0.1');
  socket.write(Buffer.from([0xea, 0x60, 0]));
  await expect(once(socket, 'end')).rejects.toMatchObject({ code: 'ECONNRESET' });
});
