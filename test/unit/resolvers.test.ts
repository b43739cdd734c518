import { expect, test } from 'vitest';
import { examineResolvers } from '../../src/engines/docker/examine-machine.js';
import { systemResolvers } from '../../src/machine-network/resolvers.js';

const FALLBACK = ['8.8.8.8', '8.8.4.4'];
const found = (main: string, upstream = '') =>
  systemResolvers((path) => (path === '/etc/resolv.conf' ? main : upstream));
const lines = (...addresses: string[]) => addresses.map((each) => `nameserver ${each}\n`).join('');

test.each([
  ['the machine', lines('192.168.1.1', '9.9.9.9'), '', ['192.168.1.1', '9.9.9.9']],
  ['the machine, without its IPv6', lines('fe80::1%eth0', '192.168.1.1'), '', ['192.168.1.1']],
  ['those behind a local stub', lines('127.0.0.53'), lines('10.0.0.2'), ['10.0.0.2']],
  [
    'those behind a stub, without their IPv6',
    lines('127.0.0.53'),
    lines('2001:db8::53', '10.0.0.2'),
    ['10.0.0.2'],
  ],
  ['those behind a file of IPv6', lines('2001:db8::53'), lines('10.0.0.2'), ['10.0.0.2']],
  ['the fallback, for a link-local one alone', lines('fe80::1%eth0'), '', FALLBACK],
  ['the fallback, for IPv6 in both files', lines('2001:db8::53'), lines('fe80::1%eth0'), FALLBACK],
  ['the fallback, for loopback alone', lines('127.0.0.53', '127.0.0.1', '::1', '0.0.0.0'), '', FALLBACK],
  ['the fallback, for no file', '', '', FALLBACK],
  ['the fallback, for names', 'nameserver dns.example.com\n# nameserver 9.9.9.9\n', '', FALLBACK],
])('sandboxes get the resolvers of %s', (_name, main, upstream, addresses) => {
  expect(found(main, upstream).addresses).toEqual(addresses);
});

test('doctor warns when sandboxes ask others than the machine', () => {
  const warned = examineResolvers(found(lines('fe80::1%eth0', '2001:db8::53')), []);
  expect(warned).toMatchObject({ check: 'resolvers', state: 'missing' });
  expect(warned.found).toContain('fe80::1%eth0, 2001:db8::53');
  expect(warned.remedy).toContain('--docker-resolvers');
  expect(examineResolvers(found(''), []).state).toBe('missing');
  expect(examineResolvers(found(lines('10.0.0.2')), []).state).toBe('ok');
  expect(examineResolvers(found(''), ['10.0.0.3'])).toEqual({
    check: 'resolvers',
    state: 'ok',
    found: 'sandboxes ask 10.0.0.3',
  });
});
