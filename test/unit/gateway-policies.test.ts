import fc from 'fast-check';
import { afterAll, expect, it } from 'vitest';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';
import { clientHello, Front, outcomeOf, settingsOf } from '../support/gateway-front.js';

const ADDRESSES = ['127.2.0.1', '127.2.0.2', '127.2.0.3'];
const PORTS = [22, 80, 443, 8_080];
const NAMES = ['a.example', 'b.a.example', 'ba.example', 'c.net'];
/** By hand. */
const INSIDE: Record<string, string[]> = {
  'a.example': ['a.example', 'example'],
  'b.a.example': ['b.a.example', 'a.example', 'example'],
  'ba.example': ['ba.example', 'example'],
  'c.net': ['c.net', 'net'],
};
/** The addresses of a block. */
const BLOCKS: Record<string, string[]> = {
  '127.2.0.1': ['127.2.0.1'],
  '127.2.0.2/31': ['127.2.0.2', '127.2.0.3'],
  '127.0.0.0/8': ADDRESSES,
};

interface Attempt {
  address: string;
  port: number;
  shows: 'tls' | 'http' | 'ssh';
  name: string | undefined;
}

const rule = fc.record({
  direction: fc.constantFrom('egress', 'any', 'ingress'),
  destination: fc.oneof(
    fc.constant('any'),
    fc.record({ cidr: fc.constantFrom(...Object.keys(BLOCKS)) }),
    fc.record({ domain: fc.constantFrom(...NAMES) }),
    fc.record({ domain_suffix: fc.constantFrom('a.example', 'example', 'net') }),
  ),
  action: fc.constantFrom('allow', 'deny'),
  protocols: fc.constantFrom([], ['tcp'], ['udp']),
  ports: fc.constantFrom([], [{ start: 443, end: 443 }], [{ start: 0, end: 443 }]),
}) as fc.Arbitrary<Rule>;
const policy = fc.record({
  default_egress: fc.constantFrom('allow' as const, 'deny' as const),
  rules: fc.array(rule, { maxLength: 6 }),
});
const resolved = fc.uniqueArray(fc.tuple(fc.constantFrom(...NAMES), fc.constantFrom(...ADDRESSES)), {
  selector: ([name, address]) => `${name} ${address}`,
  maxLength: 8,
});
const attempts: fc.Arbitrary<Attempt[]> = fc.array(
  fc.record({
    address: fc.constantFrom(...ADDRESSES),
    port: fc.constantFrom(...PORTS),
    shows: fc.constantFrom('tls', 'http', 'ssh'),
    name: fc.constantFrom(...NAMES, undefined),
  }),
  { minLength: 12, maxLength: 12 },
);

/** As docs/decisions/0038-names-of-connections.md has it, without any code of the gateway. */
function mayPass(
  { default_egress, rules = [] }: NetworkPolicy,
  known: [string, string][],
  { address, port, shows, name }: Attempt,
): boolean {
  const names = known.filter(([, at]) => at === address).map(([each]) => each);
  const isWeb = port === 80 || port === 443;
  for (const each of rules) {
    const { direction, destination, action, protocols = [], ports = [] } = each;
    if (direction === 'ingress') continue;
    if (protocols.length > 0 && !protocols.includes('tcp')) continue;
    if (ports.length > 0 && !ports.some(({ start, end }) => start <= port && port <= end)) continue;
    const isDeny = action === 'deny';
    const domain = domainOf(each);
    if (domain !== undefined) {
      const matches = (one: string) =>
        'domain' in (destination as object) ? one === domain : INSIDE[one]!.includes(domain);
      let candidates: string[];
      if (shows === 'ssh') candidates = isWeb && !isDeny ? [] : names;
      else if (name === undefined) candidates = isDeny ? names : [];
      else candidates = isDeny || names.includes(name) ? [name] : [];
      if (candidates.some(matches)) return !isDeny;
    } else if (destination === 'any' || BLOCKS[(destination as { cidr: string }).cidr]!.includes(address))
      return !isDeny;
  }
  return default_egress === 'allow';
}

function domainOf({ destination }: Rule): string | undefined {
  if (typeof destination === 'string') return undefined;
  if ('domain' in destination) return destination.domain;
  return 'domain_suffix' in destination ? destination.domain_suffix : undefined;
}

const front = new Front({
  // A request is forwarded elsewhere, which has tests of its own.
  forwarder: { isNeeded: () => false, handle: (socket) => socket.resume().end('passed') },
});
afterAll(() => front.close());

async function passes({ address, port, shows, name }: Attempt): Promise<boolean> {
  const socket = await front.connect(address, port).catch(() => undefined);
  if (!socket) return false;
  if (shows === 'tls') socket.write(clientHello(name));
  else if (shows === 'http') socket.write(`GET / HTTP/1.1\r\nHost: ${name ?? address}\r\n\r\n`);
  else socket.write('SSH-2.0-test\r\n');
  const { text, end } = await outcomeOf(socket);
  if (text === 'passed') return true;
  // A refusal says so: with words for HTTP, with a reset for all others.
  expect([end, text.slice(0, 12)]).toEqual(shows === 'http' ? ['end', 'HTTP/1.1 403'] : ['reset', '']);
  return false;
}

it('lets connections pass as the policy says, whatever its rules and the names of the sandbox', async () => {
  for (const address of ADDRESSES)
    for (const port of PORTS)
      await front.serveRaw(address, port, (socket) => socket.once('data', () => socket.end('passed')));
  await fc.assert(
    fc.asyncProperty(policy, resolved, attempts, async (made, known, tried) => {
      front.table.forget('sandbox');
      front.table.set(settingsOf(made));
      for (const [name, address] of known) front.bind(name, address);
      const found = await Promise.all(tried.map(passes));
      expect(found).toEqual(tried.map((attempt) => mayPass(made, known, attempt)));
    }),
    { numRuns: 150 },
  );
});
