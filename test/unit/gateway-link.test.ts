import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { Denials } from '../../src/gateway/denials.js';
import { FlowBook } from '../../src/gateway/flows.js';
import { MessageWriter, readMessages } from '../../src/gateway/json-lines.js';
import type { Denial, FromGateway } from '../../src/gateway/protocol.js';
import { ServiceLink, type Settings } from '../../src/gateway/service-link.js';

const DENIAL: Denial = { sandbox: 's', at: 1, kind: 'name', protocol: 'dns', name: 'a.example', reason: 'r' };

function link() {
  const input = new PassThrough();
  const output = new PassThrough();
  const settings: Settings[] = [];
  const ends: (string | undefined)[] = [];
  const sent: FromGateway[] = [];
  readMessages<FromGateway>(output, 1_000_000, { receive: (each) => sent.push(each), fail: () => {} });
  const opened = new ServiceLink(input, output, {
    settings: (message) => settings.push(message),
    end: (reason) => ends.push(reason),
  });
  return { input, output, settings, ends, sent, link: opened };
}

it('reads messages that are split anywhere, and stops at a long line or at no JSON', async () => {
  const bytes = Buffer.from('{"a":"é"}\n{"b":2}\n');
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    const input = new PassThrough();
    const read: unknown[] = [];
    readMessages(input, 10, { receive: (each) => read.push(each), fail: () => read.push('fail') });
    input.write(bytes.subarray(0, cut));
    input.write(bytes.subarray(cut));
    await setImmediate();
    expect(read).toEqual([{ a: 'é' }, { b: 2 }]);
  }
  for (const text of ['{"a":"12345"}', '{"a":"12345"}\n', 'no\n']) {
    const input = new PassThrough();
    const read: unknown[] = [];
    readMessages(input, 10, { receive: (each) => read.push(each), fail: (reason) => read.push(reason) });
    input.write(`1\n${text}`);
    input.write('2\n');
    await setImmediate();
    expect(read).toEqual([1, text === 'no\n' ? 'a line is no JSON' : 'a line is too long']);
  }
});

it('matches answers to requests, in any order, and gives up in time', async () => {
  const { input, link: service, sent, settings } = link();
  const bound = service.bind('s', 'a.example', ['192.0.2.1'], 60);
  const asked = service.ask(Buffer.from('query'), 60_000);
  const late = service.ask(Buffer.from('late'), -500);
  await setImmediate();
  expect(sent.map(({ type }) => type)).toEqual(['bind', 'ask', 'ask']);
  input.write(`{"type":"asked","request":2,"answer":"${Buffer.from('answer').toString('base64')}"}\n`);
  input.write('{"type":"forget","id":"s"}\n{"type":"bound","request":1,"ok":true}\n');
  // An answer to nothing.
  input.write('{"type":"bound","request":99,"ok":true}\n');
  expect((await asked)?.toString()).toBe('answer');
  expect(await bound).toBe(true);
  expect(await late).toBeUndefined();
  expect(settings).toEqual([{ type: 'forget', id: 's' }]);
});

it('loses messages rather than memory when the service reads nothing', async () => {
  const output = new PassThrough({ highWaterMark: 1 });
  const writer = new MessageWriter<string>(output, 10_000);
  let taken = 0;
  for (let i = 0; i < 1_000; i += 1) if (writer.write('x'.repeat(100))) taken += 1;
  expect(taken).toBeLessThan(110);
  await setImmediate();
  output.resume();
  await once(output, 'drain');
  expect(writer.write('again')).toBe(true);
});

it('ends when the service does, and at a broken message', async () => {
  const gone = link();
  gone.input.end();
  await setImmediate();
  expect(gone.ends).toEqual([undefined]);
  const broken = link();
  broken.input.write('{\n');
  await setImmediate();
  expect(broken.ends).toEqual(['a line is no JSON']);
});

it('tells the first refusal at once, and the number of equal ones later', () => {
  const told: Denial[] = [];
  const denials = new Denials((denial) => told.push(denial));
  for (let i = 0; i < 1_000; i += 1) denials.add(DENIAL);
  expect(told).toEqual([DENIAL]);
  for (let i = 0; i < 1_000; i += 1) denials.add({ ...DENIAL, name: `${i}.example` });
  expect(told.length).toBe(64);
  denials.flush();
  expect(told.slice(64)).toEqual([
    { ...DENIAL, count: 999 },
    {
      sandbox: 's',
      at: 1,
      kind: 'name',
      protocol: 'dns',
      reason: 'further refusals, too many to name',
      count: 937,
    },
  ]);
  denials.flush();
  expect(told.length).toBe(66);
});

it('reports many flows with long names of secrets in lines that the service reads', async () => {
  const { link: opened, sent } = link();
  const book = new FlowBook();
  const secrets = Array.from({ length: 40 }, (_, position) => `${position}`.padEnd(1_000, 'K'));
  for (let port = 1; port <= 64; port += 1) {
    const flow = book.open('s', { address: '192.0.2.1', port, protocol: 'tcp', rule: 0 });
    for (const secret of secrets) flow.usedSecret(secret);
  }
  opened.flows(book.report());
  await setImmediate();
  expect(sent.flatMap((message) => (message.type === 'flows' ? message.flows : []))).toHaveLength(64);
});

it('counts traffic by destination, each byte once, and the surplus of destinations together', () => {
  let now = 1_000;
  const book = new FlowBook(() => now);
  const destination = {
    name: 'a.example',
    address: '192.0.2.1',
    port: 443,
    protocol: 'tcp',
    rule: 0,
  } as const;
  const first = book.open('s', destination);
  first.sent(10);
  now = 2_000;
  first.received(20);
  first.usedSecret('KEY');
  const flow = { sandbox: 's', ...destination, connections: 1, sentBytes: 10, receivedBytes: 20 };
  expect(book.report()).toEqual([{ ...flow, firstAt: 1_000, lastAt: 2_000, secrets: ['KEY'] }]);
  expect(book.report()).toEqual([]);
  now = 3_000;
  first.sent(1);
  first.end();
  expect(book.report('other')).toEqual([]);
  expect(book.report('s')).toMatchObject([{ connections: 0, sentBytes: 1, receivedBytes: 0, secrets: [] }]);
  for (let port = 1; port <= 1_000; port += 1) book.open('s', { ...destination, port }).sent(1);
  const flows = book.report();
  expect(flows.length).toBe(257);
  expect(flows.reduce((sum, { sentBytes }) => sum + sentBytes, 0)).toBe(1_000);
  expect(flows.find(({ address }) => address === '*')).toMatchObject({ port: 0, connections: 744 });
});
