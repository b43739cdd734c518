import fc from 'fast-check';
import { decode } from 'dns-packet';
import { expect, it } from 'vitest';
import { ForeignNameServer } from '../../src/gateway/dns/foreign.js';
import { readResolution } from '../../src/gateway/dns/resolution.js';
import type { Denial } from '../../src/gateway/protocol.js';
import { gatedNames, queryOf, SANDBOX, settingsOf } from '../support/gated-names.js';
import { cpuTime } from '../support/cpu-time.js';

const ALLOW_ALL = { default_egress: 'allow' as const };

/** Changes, cuts and adds bytes. */
function damaged(valid: Buffer): fc.Arbitrary<Buffer> {
  const change = fc.record({ at: fc.nat(valid.length - 1), value: fc.nat(255) });
  return fc
    .record({
      changes: fc.array(change, { maxLength: 6 }),
      length: fc.nat(valid.length),
      tail: fc.uint8Array({ maxLength: 40 }),
    })
    .map(({ changes, length, tail }) => {
      const bytes = Buffer.from(valid);
      for (const { at, value } of changes) bytes[at] = value;
      return Buffer.concat([bytes.subarray(0, length === 0 ? valid.length : length), tail]);
    });
}

/** Random bytes would nearly never be a query. */
const queries = fc.oneof(
  fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.from(bytes)),
  damaged(queryOf('example.com')),
  damaged(queryOf('a.b.example.com', 'TXT', { edns: { size: 1_232 } })),
);

function checkReply(query: Buffer, reply: Buffer | undefined): void {
  if (!reply) return;
  // It can be parsed, is an answer, and has the id of the query.
  const packet = decode(reply);
  expect(packet.flag_qr).toBe(true);
  expect(packet.id).toBe(query.readUInt16BE(0));
  expect(query[2]! & 0x80).toBe(0);
  expect(reply.length).toBeLessThanOrEqual(1_232);
  const [question] = packet.questions ?? [];
  if (question) expect(reply.includes(query.subarray(12, 12 + 4))).toBe(true);
}

it('answers hostile queries with a valid message or not at all', async () => {
  let answered = 0;
  await fc.assert(
    fc.asyncProperty(queries, async (query) => {
      const { server } = gatedNames(settingsOf(ALLOW_ALL));
      const reply = await server.handle(query, SANDBOX, 'udp');
      checkReply(query, reply);
      if (reply) answered += 1;
    }),
    { numRuns: 2_000 },
  );
  expect(answered).toBeGreaterThan(100);
});

it('survives hostile answers of name servers', async () => {
  const valid = Buffer.concat([
    Buffer.from([0, 7, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0]),
    queryOf('example.com').subarray(12),
    Buffer.from([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 4, 1, 97, 0xc0, 12]),
    Buffer.from([0xc0, 41, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 93, 184, 215, 14]),
  ]);
  expect(readResolution(valid, 'example.com', 1)).toMatchObject({
    aliases: ['a.example.com'],
    addresses: ['93.184.215.14'],
  });
  await fc.assert(
    fc.asyncProperty(
      damaged(valid),
      fc.constantFrom('A', 'CNAME', 'TXT', 'MX', 'PTR'),
      async (answer, type) => {
        const { server, bound, table } = gatedNames(settingsOf(ALLOW_ALL), {
          ask: () => Promise.resolve(answer),
        });
        const query = queryOf('example.com', type);
        checkReply(query, await server.handle(query, SANDBOX, 'udp'));
        for (const { addresses } of bound)
          expect(table.at(SANDBOX)!.bindings.namesOf(addresses[0]!)).toEqual(['example.com']);
      },
    ),
    { numRuns: 2_000 },
  );
});

it('reads an answer that is made to be slow within milliseconds', async () => {
  // A chain of pointers, and records whose names lead through all of it. The library alone needs a hundred times more.
  const question = queryOf('example.com').subarray(12);
  const begin = 12 + question.length + 12;
  const slow = (links: number, records: number) => {
    const chain = Buffer.alloc(2 * links + 2);
    for (let at = 2; at < chain.length; at += 2) chain.writeUInt16BE(0xc000 | (begin + at - 2), at);
    const header = Buffer.from([0, 7, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
    header.writeUInt16BE(records + 1, 6);
    const first = Buffer.from([0xc0, 12, 0, 10, 0, 1, 0, 0, 0, 0, 0, 0]);
    first.writeUInt16BE(chain.length, 10);
    const record = Buffer.from([0, 0, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 1, 2, 3, 4]);
    record.writeUInt16BE(0xc000 | (begin + 2 * links), 0);
    return Buffer.concat([header, question, first, chain, ...Array.from({ length: records }, () => record)]);
  };
  expect(readResolution(slow(4, 500), 'example.com', 1)).toBeDefined();
  const taken = await cpuTime(() => {
    for (const message of [slow(4_000, 500), slow(6, 500), slow(4, 800), slow(4, 60_000)])
      expect(readResolution(message, 'example.com', 1)).toBeUndefined();
  });
  expect(taken).toBeLessThan(200);
});

it('refuses other operations, classes, versions and several questions', async () => {
  const { send } = gatedNames(settingsOf(ALLOW_ALL));
  const update = queryOf('example.com');
  update[2]! |= 5 << 3;
  expect(await send(update)).toMatchObject({ code: 4 });
  const two = queryOf('example.com');
  two.writeUInt16BE(2, 4);
  expect(await send(two)).toMatchObject({ code: 1 });
  expect(await send(queryOf('version.bind', 'TXT', { class: 3 }))).toMatchObject({ code: 5 });
  const version = await send(queryOf('example.com', 'A', { edns: { size: 1_232, version: 1 } }));
  expect(version).toMatchObject({ code: 0, data: [], additionals: [{ type: 'OPT', extendedRcode: 1 }] });
  const response = queryOf('example.com');
  response[2]! |= 0x80;
  expect(await send(response)).toBeUndefined();
  // The service has not described the sandbox yet.
  expect(await send(queryOf('example.com'), '10.77.0.99')).toMatchObject({ code: 2, data: [] });
});

it('takes a label with a dot for no name', async () => {
  const { send } = gatedNames(
    settingsOf({
      rules: [{ direction: 'egress', action: 'allow', destination: { domain: 'a.example.com' } }],
    }),
  );
  const query = queryOf('a_example.com', 'AAAA');
  expect(query[14]).toBe('_'.charCodeAt(0));
  query[14] = '.'.charCodeAt(0);
  expect(await send(query)).toMatchObject({ code: 5 });
});

it('knows no name on the addresses of other resolvers, and tells of it', async () => {
  const { table } = gatedNames(settingsOf(ALLOW_ALL));
  const denials: Denial[] = [];
  const foreign = new ForeignNameServer(table, { denied: (denial) => denials.push(denial) });
  const query = queryOf('example.com', 'A', { edns: { size: 4_096 } });
  const reply = await foreign.handle(query, SANDBOX, 'udp');
  expect(reply![3]! & 15).toBe(3);
  checkReply(query, reply);
  expect(denials).toMatchObject([{ sandbox: 's', kind: 'name', name: 'example.com' }]);
  expect(denials[0]!.reason).toContain('another resolver');
  expect(await foreign.handle(query, '10.77.0.99', 'udp')).toBeUndefined();
  await fc.assert(
    fc.asyncProperty(queries, async (bytes) =>
      checkReply(bytes, await foreign.handle(bytes, SANDBOX, 'tcp')),
    ),
  );
});
