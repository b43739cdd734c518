/**
 * The servers of an internet for tests, in the network namespace in which this program was started. The first line of
 * its standard input is the configuration. Each further line is a command. It ends when its input ends.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { ZoneServer } from './names.js';
import type { Command, ServersConfig } from './protocol.js';
import { WebServers } from './web.js';

const KEPT_CONTACTS = 20_000;
/** 853: DNS over TLS. 9: accepts, and is silent. */
const RAW_TCP: Record<number, (socket: Socket) => void> = {
  7: (socket) => void socket.pipe(socket),
  9: () => undefined,
  22: (socket) => {
    socket.write('SSH-2.0-internet\r\n');
    socket.pipe(socket);
  },
  853: (socket) => socket.end(),
  8443: (socket) => void socket.pipe(socket),
};
const RAW_UDP = [7, 443, 784, 853, 5353, 5355];

const lines = createInterface(process.stdin)[Symbol.asyncIterator]();
const config = JSON.parse((await lines.next()).value as string) as ServersConfig;
const contacts: string[] = [];

function contact(kind: 'tcp' | 'udp', address: string, port: number): void {
  contacts.push(`${kind} ${address}:${port}`);
  if (contacts.length > KEPT_CONTACTS) contacts.shift();
}

const names = new ZoneServer(config.zone);
await names.listen(config.resolver);
const web = new WebServers(config, names, ({ localAddress, localPort }) =>
  contact('tcp', localAddress!, localPort!),
);
await web.listen();
for (const [port, serve] of Object.entries(RAW_TCP)) {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined).on('end', () => socket.end());
    contact('tcp', socket.localAddress!, socket.localPort!);
    serve(socket);
  });
  server.listen(Number(port), '0.0.0.0');
  await once(server, 'listening');
}
// A socket for each address, because a datagram does not say to which address it came.
for (const address of config.udpAddresses) {
  for (const port of RAW_UDP) {
    const socket = createSocket('udp4', (_, peer) => {
      contact('udp', address, port);
      socket.send(`udp ${port}`, peer.port, peer.address);
    });
    socket.bind(port, address);
    await once(socket, 'listening');
  }
}
process.stdout.write('{"isReady":true}\n');

for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const { id, command } = JSON.parse(line.value) as { id: number; command: Command };
  process.stdout.write(`${JSON.stringify({ id, answer: carryOut(command) })}\n`);
}
process.exit(0);

function carryOut(command: Command): unknown {
  switch (command.do) {
    case 'zone':
      names.zone = { ...names.zone, ...command.zone };
      return undefined;
    case 'requests':
      return web.requests.splice(0);
    case 'questions':
      return names.questions.splice(0);
    case 'contacts':
      return contacts.splice(0);
  }
}
