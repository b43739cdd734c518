import { expect, test } from 'vitest';
import { machineAddresses } from '../../src/machine-network/machine-addresses.js';

const IPV4 = `Main:
  +-- 0.0.0.0/0 4 0 12
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
     |-- 172.17.0.0
        /16 link UNICAST
     |-- 172.17.0.1
        /32 host LOCAL
     |-- 172.17.255.255
        /32 link BROADCAST
     |-- 192.0.2.4
        /32 link UNICAST
        /32 host LOCAL
Local:
     |-- 192.0.2.4
        /32 host LOCAL
`;
const IPV6 = `00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
fd000000000000000000000000000002 04 40 00 82     eth0
fe80000000000000042c4ffffeb036c7 05 40 20 80  veth12ab
`;

test('the addresses of the machine are those of the kernel, without loopback and without links of sandboxes', () => {
  const addresses = machineAddresses((path) => (path.includes('fib') ? IPV4 : IPV6));
  expect(addresses).toEqual(['172.17.0.1', '192.0.2.4', 'fe80::fc:ff:fe00:1', 'fd00::2']);
});

test('a machine without IPv6 has its other addresses', () => {
  expect(machineAddresses((path) => (path.includes('fib') ? IPV4 : ''))).toEqual(['172.17.0.1', '192.0.2.4']);
});
