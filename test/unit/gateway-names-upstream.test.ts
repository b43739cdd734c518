import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { createSocket, type RemoteInfo } from 'node:dgram';
import { once } from 'node:events';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { exchange } from '../../src/gateway/dns/exchange.js';
import { NameServers } from '../../src/gateway/dns/name-servers.js';
import { encodeQuery } from '../../src/gateway/dns/reply.js';
import { readResolution } from '../../src/gateway/dns/resolution.js';
import { mayAsk, readServerAddress } from '../../src/gateway/dns/server-address.js';
import { MachineNames, nameserversIn } from '../../src/gateway/machine-names.js';
import { GatedSandbox } from '../../src/gateway/sandbox.js';
import { settingsOf } from '../support/gated-names.js';
import { a, startNameServer, type Asked, type StandIn, type Told } from '../support/stand-in-resolver.js';

const QUERY = encodeQuery('example.com', 1);
const started: StandIn[] = [];

afterEach(() => {
  for (const server of started.splice(0)) server.close();
});

async function start(tell: (asked: Asked) => Told | Promise<Told>, address?: string): Promise<StandIn> {
  const server = await startNameServer(tell, address);
  started.push(server);
  return server;
}

function says(data: string) {
  return ({ name }: Asked) => ({ answers: [a(name, data)] });
}

function addressesIn(message: Buffer | undefined): string[] | undefined {
  return message && readResolution(message, 'example.com', 1)?.addresses;
}

/** Nobody listens there: the kernel says so at once. */
const CLOSED = { address: '127.0.0.1', port: 1 };

it('takes the next name server when one refuses, fails, stays silent or is closed', async () => {
  // The servers in the order in which they are asked. A busy machine may ask one again, and further ones.
  let order: string[] = [];
  const noting = (name: string, told: Told) => () => {
    order.push(name);
    return told;
  };
  const good = await start(({ name }) => {
    order.push('good');
    return { answers: [a(name, '93.184.215.14')] };
  });
  const refusing = await start(noting('refusing', { rcode: 5 }));
  const failing = await start(noting('failing', { rcode: 2 }));
  const silent = await start(noting('silent', null));
  for (const first of [CLOSED, { address: '::1', port: 1 }, refusing, failing, silent]) {
    const began = performance.now();
    const servers = new NameServers([first, good]);
    expect(addressesIn(await servers.query(QUERY, 50_000))).toEqual(['93.184.215.14']);
    // A silent one costs 200 ms. The rest is for a busy machine, and far below the time-out.
    expect(performance.now() - began).toBeLessThan(20_000);
    order = [];
    await servers.query(QUERY, 50_000);
    // The second query begins with the server that has answered.
    expect(order[0]).toBe('good');
  }
});

it('passes on a refusal when no server has better, and ends with its time', async () => {
  const refusing = await start(() => ({ rcode: 5 }));
  const silent = await start(() => null);
  const refusal = await new NameServers([refusing, CLOSED]).query(QUERY, 5_000);
  expect(refusal![3]! & 15).toBe(5);
  expect(await new NameServers([silent]).query(QUERY, 150)).toBeUndefined();
  expect(await new NameServers([]).query(QUERY, 150)).toBeUndefined();
});

it('asks again when a packet was lost, and by TCP when the answer was cut', async () => {
  let packets = 0;
  const lossy = await start(({ name, transport }) => {
    packets += 1;
    if (packets === 1) return null;
    return transport === 'udp' ? { truncated: true } : { answers: [a(name, '93.184.215.14')] };
  });
  const answer = await exchange(QUERY, lossy, AbortSignal.timeout(10_000));
  expect(addressesIn(answer)).toEqual(['93.184.215.14']);
  // A busy machine may answer the second packet so late that a third one is sent.
  const transports = lossy.asked.map(({ transport }) => transport);
  expect(transports.length).toBeGreaterThanOrEqual(3);
  expect(transports).toEqual([...transports.slice(1).map(() => 'udp'), 'tcp']);
  // The id of the caller, and another one on the way.
  expect(answer.readUInt16BE(0)).toBe(QUERY.readUInt16BE(0));
  expect(new Set(lossy.asked.map(({ message }) => message.readUInt16BE(0))).size).toBe(1);
});

it('takes no answer with another id, of another question, or of another sender', async () => {
  const server = createSocket('udp4');
  const forger = createSocket('udp4');
  const ports = new Set<number>();
  const ids = new Set<number>();
  const answer = (query: Buffer, data: string) => {
    const header = Buffer.from(query.subarray(0, 12));
    header.writeUInt16BE(0x8180, 2);
    header.writeUInt16BE(1, 6);
    header.writeUInt16BE(0, 10);
    const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...data.split('.').map(Number)]);
    return Buffer.concat([header, query.subarray(12, query.length - 11), record]);
  };
  server.on('message', (query: Buffer, { port, address }: RemoteInfo) => {
    ports.add(port);
    ids.add(query.readUInt16BE(0));
    const wrongId = answer(query, '6.6.6.6');
    wrongId.writeUInt16BE(query.readUInt16BE(0) ^ 1, 0);
    const wrongName = answer(query, '6.6.6.6');
    wrongName[13]! ^= 1;
    const notAnAnswer = answer(query, '6.6.6.6');
    notAnAnswer[2]! &= 0x7f;
    forger.send(answer(query, '6.6.6.6'), port, address, () => {
      for (const bytes of [wrongId, wrongName, notAnAnswer, Buffer.alloc(3), answer(query, '93.184.215.14')])
        server.send(bytes, port, address);
    });
  });
  server.bind(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  for (let round = 0; round < 20; round += 1) {
    const reply = await exchange(QUERY, { address: '127.0.0.1', port }, AbortSignal.timeout(10_000));
    expect(addressesIn(reply)).toEqual(['93.184.215.14']);
  }
  expect(ports.size).toBeGreaterThan(10);
  expect(ids.size).toBeGreaterThan(10);
  server.close();
  forger.close();
});

it('asks the name servers of the machine, also after their file has changed', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'names-'));
  const path = join(directory, 'resolv.conf');
  const [one, two, six] = await Promise.all([
    start(says('93.184.215.1')),
    start(says('93.184.215.2')),
    start(says('93.184.215.6'), '::1'),
  ]);
  const write = async (...servers: string[]) => {
    await writeFile(`${path}.new`, servers.map((server) => `nameserver ${server}\n`).join(''));
    await rename(`${path}.new`, path);
  };
  await write(`127.0.0.1:${one.port}`);
  const names = new MachineNames({ path });
  expect(addressesIn(await names.ask(QUERY, 5_000))).toEqual(['93.184.215.1']);
  await write(`[::1]:${six.port}`, `127.0.0.1:${two.port}`);
  await sleep(1_050);
  expect(addressesIn(await names.ask(QUERY, 5_000))).toEqual(['93.184.215.6']);
  six.close();
  started.splice(started.indexOf(six), 1);
  expect(addressesIn(await names.ask(QUERY, 5_000))).toEqual(['93.184.215.2']);

  // The gateway parses what strangers send: its messages are checked here.
  for (const wrong of [Buffer.alloc(0), Buffer.alloc(12), QUERY.subarray(0, 14), Buffer.alloc(600, 1)])
    expect(await names.ask(wrong, 5_000)).toBeUndefined();
  const response = Buffer.from(QUERY);
  response[2]! |= 0x80;
  expect(await names.ask(response, 5_000)).toBeUndefined();
  await rm(directory, { recursive: true });
});

it('asks a name server with a link-local address', async () => {
  const interfaces = Object.entries(networkInterfaces()).flatMap(([zone, addresses = []]) =>
    addresses.map(({ address }) => ({ address, zone })),
  );
  const linkLocal = interfaces.find(({ address }) => address.startsWith('fe80:')) ?? {
    address: '::1',
    zone: 'lo',
  };
  const server = await start(says('93.184.215.14'), `${linkLocal.address}%${linkLocal.zone}`);
  const names = new MachineNames({ servers: [`[${server.address}]:${server.port}`] });
  expect(addressesIn(await names.ask(QUERY, 5_000))).toEqual(['93.184.215.14']);
});

it('reads every server of the file, also link-local ones and stubs', () => {
  const text =
    '# nameserver 1.1.1.1\nsearch a.example\n nameserver\tfe80::1%eth0\nnameserver 127.0.0.53 # stub\nnameserver ::1\n';
  expect(nameserversIn(text)).toEqual(['fe80::1%eth0', '127.0.0.53', '::1']);
  expect(readServerAddress('fe80::1%eth0')).toEqual({ address: 'fe80::1%eth0', port: 53 });
  expect(readServerAddress('9.9.9.9:5353')).toEqual({ address: '9.9.9.9', port: 5_353 });
  expect(readServerAddress('[2620:fe::fe]:53')).toEqual({ address: '2620:fe::fe', port: 53 });
  for (const wrong of [
    'dns.example.com',
    'dns.example.com:53',
    '1.1.1.1:0',
    '1.1.1.1:65536',
    '[1.1.1.1',
    ':53',
    '',
  ])
    expect(readServerAddress(wrong)).toBeUndefined();
});

it('never asks guarded addresses for a specification, and private ones only where a rule opens them', () => {
  const asks = (address: string, cidr?: string) => {
    const rules =
      cidr === undefined
        ? []
        : [{ direction: 'egress' as const, action: 'allow' as const, destination: { cidr } }];
    const settings = settingsOf({ rules });
    return mayAsk(new GatedSandbox(settings), { address, port: 53 });
  };
  expect(asks('9.9.9.9')).toBe(true);
  expect(asks('2620:fe::fe')).toBe(true);
  expect(asks('192.168.1.1')).toBe(false);
  expect(asks('192.168.1.1', '192.168.0.0/16')).toBe(true);
  for (const address of [
    '10.77.0.1',
    '10.77.0.9',
    '127.0.0.53',
    '169.254.169.254',
    '169.254.7.53',
    '100.100.100.200',
  ])
    expect(asks(address, '0.0.0.0/0')).toBe(false);
  for (const address of ['::1', 'fe80::1%eth0', '::ffff:127.0.0.1', '::ffff:10.77.0.1', 'fd00:ec2::254'])
    expect(asks(address, '::/0')).toBe(false);
});
