import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { mayAsk } from '../../src/gateway/dns/server-address.js';
import type { DnsSettings } from '../../src/gateway/protocol.js';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';
import { gatedNames, queryOf, SANDBOX, settingsOf } from '../support/gated-names.js';
import {
  a,
  alias,
  soa,
  startNameServer,
  type Asked,
  type StandIn,
  type Told,
} from '../support/stand-in-resolver.js';

const NO_ERROR = 0;
const SERVER_FAILURE = 2;
const NAME_ERROR = 3;
const REFUSED = 5;

function rule(action: Rule['action'], destination: Rule['destination']): Rule {
  return { direction: 'egress', action, destination };
}

const ALLOWED: NetworkPolicy = {
  rules: [rule('allow', { domain_suffix: 'example.com' }), rule('deny', { domain_suffix: 'tracker.test' })],
};

let standIn: StandIn | undefined;
afterEach(() => {
  standIn?.close();
  standIn = undefined;
});

async function names(
  tell: (asked: Asked) => Told | Promise<Told>,
  policy: NetworkPolicy = ALLOWED,
  dns: Partial<DnsSettings> = {},
) {
  const upstream = await startNameServer(tell);
  standIn = upstream;
  const nameservers = [`${upstream.address}:${upstream.port}`];
  return { upstream, ...gatedNames(settingsOf(policy, { nameservers, ...dns })) };
}

it('binds the addresses of an allowed name before it answers', async () => {
  const { send, bound, table, denials } = await names(({ name }) => ({
    answers: [a(name, '93.184.215.14', 300), a(name, '93.184.215.15', 60)],
  }));
  const reply = await send(queryOf('wWw.eXample.com'));
  expect(reply).toMatchObject({ id: 7, code: NO_ERROR, data: ['93.184.215.14', '93.184.215.15'] });
  // Some clients compare the case of the letters.
  expect(reply!.questions![0]!.name).toBe('wWw.eXample.com');
  expect(reply!.answers!.map((answer) => [answer.name, 'ttl' in answer && answer.ttl])).toEqual([
    ['wWw.eXample.com', 60],
    ['wWw.eXample.com', 60],
  ]);
  const addresses = ['93.184.215.14', '93.184.215.15'];
  expect(bound).toEqual([{ sandbox: 's', name: 'www.example.com', addresses, ttlSecs: 60 }]);
  expect(table.at(SANDBOX)!.bindings.namesOf('93.184.215.14')).toEqual(['www.example.com']);
  expect(denials).toEqual([]);
});

it('answers no address that the kernel did not take, and binds none', async () => {
  const { send, kernel, table } = await names(({ name }) => ({ answers: [a(name, '93.184.215.14')] }));
  kernel.takes = false;
  expect(await send(queryOf('example.com'))).toMatchObject({ code: SERVER_FAILURE, data: [] });
  expect(table.at(SANDBOX)!.bindings.namesOf('93.184.215.14')).toEqual([]);
});

it('refuses a name that no connection may use, without asking anybody', async () => {
  const { send, denials, upstream } = await names(() => ({}));
  for (const type of ['A', 'AAAA', 'HTTPS', 'TXT', 'ANY'])
    expect(await send(queryOf('other.test', type))).toMatchObject({ code: REFUSED });
  expect(await send(queryOf('x.tracker.test'))).toMatchObject({ code: REFUSED });
  expect(await send(queryOf('notexample.com'))).toMatchObject({ code: REFUSED });
  expect(upstream.asked).toEqual([]);
  expect(denials).toHaveLength(7);
  expect(denials[0]).toMatchObject({ sandbox: 's', kind: 'name', name: 'other.test', rule: 'default' });
  expect(denials[5]).toMatchObject({ name: 'x.tracker.test', rule: 1 });
});

it('knows no names of addresses where the policy allows none, and does not tell of it', async () => {
  const { send, denials, upstream } = await names(() => ({}));
  for (const name of ['14.215.184.93.in-addr.arpa', 'b.a.ip6.arpa'])
    expect(await send(queryOf(name, 'PTR'))).toMatchObject({ code: NAME_ERROR });
  expect(denials).toEqual([]);
  expect(upstream.asked).toEqual([]);
});

it('fails at once, and says why, when it may ask none of the name servers', async () => {
  const settings = settingsOf(ALLOWED, { nameservers: ['10.77.0.1', '169.254.169.254'] });
  const { send, denials } = gatedNames(settings, { mayAsk });
  expect(await send(queryOf('example.com'))).toMatchObject({ code: SERVER_FAILURE });
  expect(denials.map(({ reason }) => reason)).toEqual([
    expect.stringContaining('10.77.0.1'),
    expect.stringContaining('169.254.169.254'),
  ]);
});

it('answers AAAA, HTTPS and SVCB of an allowed name empty, at once', async () => {
  const { send, upstream } = await names(() => null);
  for (const type of ['AAAA', 'HTTPS', 'SVCB', 99])
    expect(await send(queryOf('example.com', type))).toMatchObject({ code: NO_ERROR, data: [] });
  expect(await send(queryOf('example.com', 'AXFR'))).toMatchObject({ code: REFUSED });
  expect(await send(queryOf('example.com', 'ANY'))).toMatchObject({ data: [{ cpu: 'RFC8482' }] });
  expect(upstream.asked).toEqual([]);
});

it('follows aliases, binds the name that was asked, and refuses an alias of a denied name', async () => {
  const { send, bound, denials, table } = await names(({ name }) => ({
    answers:
      name === 'www.example.com'
        ? [
            alias(name, 'edge.cdn.test'),
            alias('edge.cdn.test', 'Node.cdn.test', 5),
            a('node.CDN.test', '93.184.215.14'),
          ]
        : [alias(name, 'x.tracker.test'), a('x.tracker.test', '93.184.215.20')],
  }));
  const reply = await send(queryOf('www.example.com'));
  expect(reply!.data).toEqual(['edge.cdn.test', 'Node.cdn.test', '93.184.215.14']);
  expect(bound).toMatchObject([{ name: 'www.example.com', addresses: ['93.184.215.14'], ttlSecs: 5 }]);
  expect(await send(queryOf('cloaked.example.com'))).toMatchObject({ code: REFUSED, data: [] });
  expect(denials).toMatchObject([{ name: 'cloaked.example.com', rule: 1 }]);
  expect(denials[0]!.reason).toContain('x.tracker.test');
  expect(table.at(SANDBOX)!.bindings.namesOf('93.184.215.20')).toEqual([]);
});

it('never follows a loop, a long chain or the records of other names', async () => {
  const { send, bound } = await names(({ name }) => {
    if (name === 'loop.example.com') return { answers: [alias(name, 'b.test'), alias('b.test', name)] };
    if (name === 'other.example.com') return { answers: [a('example.com', '93.184.215.14')] };
    const links = Array.from({ length: 30 }, (_, link) =>
      alias(link === 0 ? name : `l${link}.test`, `l${link + 1}.test`),
    );
    return { answers: [...links, a('l30.test', '93.184.215.14')] };
  });
  expect(await send(queryOf('loop.example.com'))).toMatchObject({ code: SERVER_FAILURE });
  expect(await send(queryOf('long.example.com'))).toMatchObject({ code: SERVER_FAILURE });
  expect(await send(queryOf('other.example.com'))).toMatchObject({ code: NO_ERROR, data: [] });
  expect(bound).toEqual([]);
});

it('passes on that a name or a record is missing, with the record that says for how long', async () => {
  const { send, upstream } = await names(({ name }) => ({
    rcode: name.startsWith('no.') ? NAME_ERROR : NO_ERROR,
    authorities: [soa('example.com', 600, 30), soa('evil.test')],
  }));
  for (let round = 0; round < 2; round += 1) {
    const missing = await send(queryOf('no.example.com'));
    expect(missing).toMatchObject({
      code: NAME_ERROR,
      authorities: [{ type: 'SOA', name: 'example.com' }],
    });
    expect(
      Math.max(...(missing!.authorities as { ttl: number }[]).map(({ ttl }) => ttl)),
    ).toBeLessThanOrEqual(30);
    expect(missing!.authorities).toHaveLength(1);
    expect(await send(queryOf('example.com'))).toMatchObject({ code: NO_ERROR, data: [] });
  }
  expect(questionsOf(upstream)).toBe(2);
});

/** A question that is sent again, because a busy machine was late with the answer, keeps its id. */
function questionsOf({ asked }: StandIn): number {
  return new Set(asked.map(({ message }) => message.toString('hex'))).size;
}

it('keeps an answer for its lifetime, for the organization alone', async () => {
  const { send, upstream, table, bound } = await names(({ name }) => ({
    answers: [a(name, '93.184.215.14', name.startsWith('short') ? 1 : 60)],
  }));
  const nameservers = [`${upstream.address}:${upstream.port}`];
  const dns = { nameservers };
  table.set(settingsOf(ALLOWED, dns, { id: 'sibling', address: '10.77.0.3' }));
  table.set(settingsOf(ALLOWED, dns, { id: 'stranger', orgId: 'p', address: '10.77.0.4' }));
  table.set(
    settingsOf(
      ALLOWED,
      { nameservers: ['127.0.0.9:1', ...nameservers] },
      { id: 'poisoner', address: '10.77.0.5' },
    ),
  );

  // Equal questions that are under way share one answer.
  await Promise.all([
    send(queryOf('example.com')),
    send(queryOf('EXAMPLE.com')),
    send(queryOf('example.com'), '10.77.0.3'),
  ]);
  expect(questionsOf(upstream)).toBe(1);
  expect(bound.map(({ sandbox }) => sandbox).toSorted()).toEqual(['s', 's', 'sibling']);
  await send(queryOf('example.com'), '10.77.0.4');
  expect(questionsOf(upstream)).toBe(2);
  await send(queryOf('example.com'), '10.77.0.5');
  expect(questionsOf(upstream)).toBe(3);

  await send(queryOf('short.example.com'));
  await sleep(1_100);
  await send(queryOf('short.example.com'));
  expect(questionsOf(upstream)).toBe(5);
  const later = await send(queryOf('example.com'));
  expect(questionsOf(upstream)).toBe(5);
  // Rounded up, so that it ends no later than the first answer: the kernel has nothing to renew.
  const { ttlSecs } = bound.at(-1)!;
  expect(ttlSecs).toBeLessThanOrEqual(58);
  expect(later!.answers).toMatchObject([{ ttl: ttlSecs }]);
});

it('keeps private addresses out of answers, unless the protection is off', async () => {
  const tell = ({ name }: Asked) => ({
    answers: name.startsWith('mixed')
      ? [a(name, '10.1.2.3'), a(name, '93.184.215.14')]
      : ['127.0.0.1', '192.168.1.1', '169.254.169.254', '100.64.0.1', '0.0.0.0'].map((each) => a(name, each)),
  });
  const guarded = await names(tell);
  expect(await guarded.send(queryOf('example.com'))).toMatchObject({ code: REFUSED, data: [] });
  expect(guarded.denials).toMatchObject([{ name: 'example.com', address: '127.0.0.1' }]);
  expect((await guarded.send(queryOf('mixed.example.com')))!.data).toEqual(['93.184.215.14']);
  expect(guarded.bound).toMatchObject([{ addresses: ['93.184.215.14'] }]);
  expect(await guarded.send(queryOf('1.0.0.10.in-addr.arpa', 'PTR'))).toMatchObject({ code: NAME_ERROR });
  guarded.upstream.close();

  const open = await names(tell, ALLOWED, { rebindProtection: false });
  expect((await open.send(queryOf('mixed.example.com')))!.data).toEqual(['10.1.2.3', '93.184.215.14']);
});

it('answers localhost itself, and no name that looks like an address', async () => {
  const { send, upstream } = await names(({ name }) => ({ answers: [a(name, '93.184.215.14')] }), {
    default_egress: 'allow',
  });
  expect((await send(queryOf('localhost')))!.data).toEqual(['127.0.0.1']);
  expect((await send(queryOf('app.localhost', 'AAAA')))!.data).toEqual([]);
  for (const name of ['1.2.3.4', '16909060', 'a.0x7f', '0x'])
    expect(await send(queryOf(name))).toMatchObject({ code: NAME_ERROR });
  expect(upstream.asked).toEqual([]);
});

it('decides with the settings of the moment of the answer', async () => {
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  const { send, table, upstream } = await names(async ({ name }) => {
    await held;
    return { answers: [a(name, '93.184.215.14')] };
  });
  const changed = send(queryOf('example.com'));
  while (upstream.asked.length < 1) await sleep(5);
  table.set(settingsOf({ rules: [] }));
  release();
  expect(await changed).toMatchObject({ code: REFUSED, data: [] });
  table.forget('s');
  expect(await send(queryOf('example.com'))).toMatchObject({ code: 2, data: [] });
});

it('shortens an answer that does not fit into UDP, and sends all of it by TCP', async () => {
  const many = Array.from({ length: 100 }, (_, position) => `93.184.215.${position}`);
  const { send } = await names(({ name }) => ({ answers: many.map((each) => a(name, each)) }));
  const plain = await send(queryOf('example.com'));
  expect(plain!.bytes.length).toBeLessThanOrEqual(512);
  expect(plain).toMatchObject({ flag_tc: true, additionals: [] });
  // Clients without TCP use the part.
  expect(plain!.data.length).toBeGreaterThan(25);
  const extended = await send(queryOf('example.com', 'A', { edns: { size: 4_096 } }));
  expect(extended!.bytes.length).toBeLessThanOrEqual(1_232);
  expect(extended).toMatchObject({
    flag_tc: true,
    additionals: [{ type: 'OPT', udpPayloadSize: 1_232, flag_do: false }],
  });
  expect((await send(queryOf('example.com'), SANDBOX, 'tcp'))!.data).toEqual(many);
});

it('passes on texts and mail servers of an allowed name', async () => {
  const { send, bound } = await names(({ name, type }) => ({
    answers:
      type === 'TXT'
        ? [{ type: 'TXT', name, ttl: 5, data: [Buffer.from([0, 255]), 'two'] }]
        : [{ type: 'MX', name, ttl: 5, data: { preference: 1, exchange: 'mail.example.com' } }],
  }));
  expect((await send(queryOf('example.com', 'TXT')))!.data).toEqual([
    [Buffer.from([0, 255]), Buffer.from('two')],
  ]);
  expect((await send(queryOf('example.com', 'MX')))!.data).toEqual([
    { preference: 1, exchange: 'mail.example.com' },
  ]);
  expect(bound).toEqual([]);
});

it('bounds the queries of a sandbox', async () => {
  const { send } = await names(() => null, ALLOWED, { queryTimeoutMs: 300 });
  const replies = await Promise.all(
    Array.from({ length: 200 }, async (_, position) => send(queryOf(`n${position}.example.com`))),
  );
  // 64 wait for the name server. The others are dropped, and their clients ask again.
  expect(replies.filter((reply) => reply?.code === SERVER_FAILURE)).toHaveLength(64);
  expect(replies.filter((reply) => reply === undefined)).toHaveLength(136);
  const flood = await Promise.all(
    Array.from({ length: 3_000 }, async () => send(queryOf('example.com', 'AAAA'))),
  );
  expect(flood.filter((reply) => reply !== undefined).length).toBeLessThan(1_200);
});

it('answers an organization while ten others wait for silent name servers', async () => {
  const { send, table } = await names(() => null, ALLOWED, { queryTimeoutMs: 400 });
  const nameservers = table.at(SANDBOX)!.settings.dns.nameservers;
  // Before the queries, whose sockets may take the port that it needs for both protocols.
  const good = await startNameServer(({ name }) => ({ answers: [a(name, '93.184.215.14')] }));
  const waiting: Promise<unknown>[] = [];
  for (let org = 0; org < 10; org += 1)
    for (let sandbox = 0; sandbox < 5; sandbox += 1) {
      const address = `10.77.${org + 1}.${sandbox}`;
      const dns = { nameservers, queryTimeoutMs: 400 };
      table.set(settingsOf(ALLOWED, dns, { id: address, orgId: `slow ${org}`, address }));
      for (let at = 0; at < 60; at += 1) waiting.push(send(queryOf(`${sandbox}-${at}.example.com`), address));
    }
  const dns = { nameservers: [`127.0.0.1:${good.port}`], queryTimeoutMs: 60_000 };
  table.set(settingsOf(ALLOWED, dns, { id: 'other', orgId: 'p', address: '10.77.0.9' }));
  expect(await send(queryOf('example.com'), '10.77.0.9')).toMatchObject({
    code: NO_ERROR,
    data: ['93.184.215.14'],
  });
  await Promise.all(waiting);
  good.close();
});
