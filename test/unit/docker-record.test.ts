import { expect, test } from 'vitest';
import { parseReading, recordTable } from '../../src/machine-network/record/record-table.js';
import { SandboxTraffic } from '../../src/machine-network/record/traffic.js';
import { Evaluator } from '../../src/network-policy/evaluate.js';

type Entries = Record<string, [packets: number, bytes: number]>;

/** The output of nft for sets with these entries, such as `tcp 192.0.2.1 443`. */
function reading(sets: Record<string, Entries>, moreBytes = 0) {
  const listed = Object.entries(sets).map(([name, entries]) => ({
    set: {
      name,
      elem: Object.entries(entries).map(([key, [packets, bytes]]) => {
        const [protocol, address, port] = key.split(' ');
        return { elem: { val: { concat: [address, protocol, Number(port)] }, counter: { packets, bytes } } };
      }),
    },
  }));
  const counter = { counter: { name: 'more', packets: 1, bytes: moreBytes } };
  return parseReading(JSON.stringify({ nftables: [{ metainfo: {} }, ...listed, counter, { chain: {} }] }));
}

const ALLOWED = 'tcp 192.0.2.1 443';
const DENIED = 'tcp 198.51.100.1 25';
const evaluator = new Evaluator(
  {
    rules: [{ direction: 'egress', destination: { cidr: '192.0.2.0/24' }, action: 'allow' }],
    default_egress: 'deny',
  },
  { hosts: [], resolvers: [], neighbours: [], openableGroups: [] },
);
const first = reading({
  tried4: { [ALLOWED]: [2, 120], [DENIED]: [3, 180] },
  opened4: { [ALLOWED]: [2, 120] },
  sent4: { [ALLOWED]: [10, 1_000] },
  received4: { [ALLOWED]: [8, 9_000] },
});

test('differences of readings are the traffic and the refusals, with their rules', () => {
  const traffic = new SandboxTraffic('a', evaluator, 1_000);
  const flow = { sandbox: 'a', address: '192.0.2.1', port: 443, protocol: 'tcp', rule: 0, secrets: [] };
  const { flows, denials } = traffic.take(first, 2_000);
  expect(flows).toEqual([
    { ...flow, connections: 2, sentBytes: 1_000, receivedBytes: 9_000, firstAt: 1_000, lastAt: 2_000 },
  ]);
  expect(denials).toEqual([
    {
      sandbox: 'a',
      at: 2_000,
      kind: 'connection',
      protocol: 'tcp',
      address: '198.51.100.1',
      port: 25,
      rule: 'default',
      count: 3,
      reason: 'the policy does not allow 198.51.100.1 port 25 by tcp',
    },
  ]);
  expect(traffic.take(first, 3_000)).toEqual({ flows: [], denials: [] });
  const later = reading(
    {
      // This entry left and came again. The gateway has the second connection, and reports it.
      tried4: { [ALLOWED]: [3, 180], [DENIED]: [1, 60] },
      opened4: { [ALLOWED]: [2, 120] },
      gated4: { [ALLOWED]: [1, 60] },
      sent4: { [ALLOWED]: [11, 1_100] },
      received4: { [ALLOWED]: [8, 9_000] },
      sent6: { 'udp 2001:db8::1 53': [1, 70] },
    },
    500,
  );
  expect(traffic.take(later, 4_000)).toMatchObject({
    flows: [
      { address: '192.0.2.1', connections: 0, sentBytes: 100, receivedBytes: 0, firstAt: 3_000 },
      { address: '2001:db8::1', protocol: 'udp', rule: null, sentBytes: 70 },
      { address: '*', port: 0, sentBytes: 500 },
    ],
    denials: [{ address: '198.51.100.1', count: 1 }],
  });
});

test('counters of an earlier process are the base of the first differences', () => {
  const traffic = new SandboxTraffic('a', undefined, 1_000);
  expect(traffic.take(first, 2_000, false)).toEqual({ flows: [], denials: [] });
  const later = reading({ sent4: { [ALLOWED]: [11, 1_500] } });
  expect(traffic.take(later, 3_000, false).flows).toMatchObject([{ rule: null, sentBytes: 500 }]);
});

test('output that is no reading counts nothing, and the table has counters of both families', () => {
  for (const text of ['', 'null', '{"nftables":[{"set":{"name":"sent4","elem":[{"elem":{}}]}}]}']) {
    expect(parseReading(text).sent.size).toBe(0);
  }
  expect(recordTable()).toContain('update @sent6 { ip6 daddr . meta l4proto . th dport } accept');
});
