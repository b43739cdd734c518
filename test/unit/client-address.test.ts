import type { IncomingMessage } from 'node:http';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { MOST_HOPS, TrustedProxies } from '../../src/http/client-address.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { cpuTime } from '../support/cpu-time.js';

const proxies = new TrustedProxies(['10.0.0.0/8', 'fd00::/8']);

function clientOf(peer: string, headers: Record<string, string>, trusted = proxies) {
  return trusted.clientOf({ socket: { remoteAddress: peer }, headers } as unknown as IncomingMessage);
}

const addressOf = (list: string, peer = '10.0.0.1') => clientOf(peer, { 'x-forwarded-for': list }).address;

describe('the address of a client', () => {
  test.each([
    ['203.0.113.9', '203.0.113.9'],
    // The client wrote the first entries.
    ['127.0.0.1, 10.9.9.9, 203.0.113.9', '203.0.113.9'],
    ['1.1.1.1,203.0.113.9,10.0.0.2,10.0.0.3', '203.0.113.9'],
    ['10.0.0.4, 10.0.0.3', '10.0.0.4'],
    ['  203.0.113.9\t', '203.0.113.9'],
    ['203.0.113.9:51422', '203.0.113.9'],
    ['2001:db8::7', '2001:db8::7'],
    ['[2001:db8::7]', '2001:db8::7'],
    ['[2001:db8::7]:443', '2001:db8::7'],
    ['203.0.113.9, fd00::1', '203.0.113.9'],
    ['fe80::1%eth0', 'fe80::1'],
    ['[fe80::1%25eth0]:80', 'fe80::1'],
    ['::ffff:203.0.113.9', '203.0.113.9'],
    ['203.0.113.9, ::ffff:10.0.0.2', '203.0.113.9'],
  ])('in the list "%s" of a trusted proxy is %s', (list, address) => {
    expect(addressOf(list)).toBe(address);
  });

  test.each([
    '',
    ' ',
    ',',
    'unknown',
    '_hidden',
    'unix',
    '203.0.113.9;',
    '203.0.113',
    '0xcb007109',
    '3405803785',
    '203.0.113.9:',
    '203.0.113.9:http',
    '203.0.113.9%eth0',
    '[203.0.113.9]:80',
    '[]',
    '[::1',
    '::1]:80',
    '"203.0.113.9"',
    'for=203.0.113.9',
    '203.0.113.9/32',
    '203.0.113.9 203.0.113.8',
    '203.0.113.9,',
    `${'0'.repeat(100)}1.1.1.1`,
    '1'.repeat(10_000),
    '\u0661.1.1.1',
  ])('is that of the proxy when the last entry of the list is malformed: %j', (list) => {
    expect(addressOf(list)).toBe('10.0.0.1');
  });

  test('is that of the last known proxy when an entry before it is malformed', () => {
    expect(addressOf('203.0.113.9, garbage, 10.0.0.2')).toBe('10.0.0.2');
    expect(addressOf(', 10.0.0.2')).toBe('10.0.0.2');
  });

  test('ignores every header of a peer that is not trusted', () => {
    const headers = {
      'x-forwarded-for': '10.0.0.1',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': 'a',
      host: 'b',
      forwarded: 'for=10.0.0.1',
      'x-real-ip': '10.0.0.1',
    };
    const own = { isProxied: false, isHttps: false, host: 'b' };
    for (const peer of ['203.0.113.9', '2001:db8::1', '11.0.0.1']) {
      expect(clientOf(peer, headers)).toEqual({ address: peer, ...own });
    }
    expect(clientOf('unix', headers)).toEqual({ address: 'unix', ...own });
    expect(clientOf('10.0.0.1', headers, new TrustedProxies([])).address).toBe('10.0.0.1');
  });

  test('trusts a Unix socket only by its own word', () => {
    const headers = { 'x-forwarded-for': '203.0.113.9' };
    expect(clientOf('unix', headers, new TrustedProxies(['unix'])).address).toBe('203.0.113.9');
    expect(clientOf('unix', headers, new TrustedProxies(['0.0.0.0/0', '::/0'])).address).toBe('unix');
    expect(clientOf('10.0.0.1', headers, new TrustedProxies(['unix'])).address).toBe('10.0.0.1');
  });

  test('is found in bounded work in a list of any length', async () => {
    const long = ['203.0.113.9', ...Array.from({ length: 10_000 }, () => '10.0.0.2')];
    expect(addressOf(long.join(','))).toBe('10.0.0.2');
    expect(addressOf(long.slice(0, MOST_HOPS).join(','))).toBe('203.0.113.9');
    expect(addressOf(long.slice(0, MOST_HOPS + 1).join(','))).toBe('10.0.0.2');
    const taken = await cpuTime(() => {
      for (let round = 0; round < 100; round += 1) addressOf(','.repeat(1_000_000));
    });
    expect(taken).toBeLessThan(5_000);
  });

  test('comes with the scheme and the host of the nearest proxy', () => {
    const read = (headers: Record<string, string>) => {
      const { isHttps, host } = clientOf('10.0.0.1', { host: 'inner', ...headers });
      return [isHttps, host];
    };
    expect(read({ 'x-forwarded-proto': 'https', 'x-forwarded-host': 'api.example.com' })).toEqual([
      true,
      'api.example.com',
    ]);
    expect(read({ 'x-forwarded-proto': 'https, http', 'x-forwarded-host': 'evil, a:8443' })).toEqual([
      false,
      'a:8443',
    ]);
    for (const host of ['', 'a b', 'a/b', 'a\\b', 'user@a', 'a'.repeat(300)]) {
      expect(read({ 'x-forwarded-proto': 'ftp', 'x-forwarded-host': host })).toEqual([false, 'inner']);
    }
  });

  test('is read in one file only', () => {
    const src = join(PACKAGE_ROOT, 'src');
    const others = readdirSync(src, { recursive: true, encoding: 'utf8' })
      // The peers of the gateway are sandboxes, without a proxy between.
      .filter((path) => path.endsWith('.ts') && !path.startsWith(join('gateway', '')))
      // Previews write these headers for servers in sandboxes.
      .filter((path) => ![join('http', 'client-address.ts'), join('previews', 'headers.ts')].includes(path))
      .filter((path) =>
        /\.remoteAddress|\brequest\.ips?\b|x-forwarded-/.test(readFileSync(join(src, path), 'utf8')),
      );
    expect(others).toEqual([]);
  });
});
