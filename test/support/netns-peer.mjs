// A peer in a network: it answers on the ports of its arguments. On requests by JSON lines on its standard input it
// tries to reach the other side. Plain JavaScript, because it starts inside a network namespace.
import { createSocket } from 'node:dgram';
import { createServer, connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { createInterface } from 'node:readline';

const ANSWER = 'reached';
const REFUSALS = new Set(['EHOSTUNREACH', 'EACCES', 'EPERM']);

/** Every name has this address. */
const NAMED = (process.env.NAMED_ADDRESS ?? '0.0.0.0').split('.').map(Number);

function answerName(query) {
  const end = query.indexOf(0, 12) + 5;
  const isV4 = query.readUInt16BE(end - 4) === 1;
  const answer = Buffer.from(query.subarray(0, end));
  answer.writeUInt16BE(0x8180, 2);
  answer.writeUInt16BE(isV4 ? 1 : 0, 6);
  answer.fill(0, 8, 12);
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...NAMED]);
  return isV4 ? Buffer.concat([answer, record]) : answer;
}

/** For names on a link without a name server. */
const GROUPS = { '0.0.0.0': '224.0.0.251', '::': 'ff02::fb' };

/** Fails without an interface for the group. */
function join(socket, host) {
  const links = Object.keys(networkInterfaces()).filter((name) => name !== 'lo');
  for (const link of links) {
    try {
      socket.addMembership(GROUPS[host], host === '::' ? `::%${link}` : networkInterfaces()[link][0].address);
    } catch {
      continue;
    }
  }
}

function serveUdp(port, host) {
  const socket = createSocket({ type: host === '::' ? 'udp6' : 'udp4', ipv6Only: host === '::' });
  socket.on('message', (message, from) => {
    const answer = port === 53 && message.length > 12 ? answerName(message) : ANSWER;
    socket.send(answer, from.port, from.address, () => undefined);
  });
  return new Promise((resolve) =>
    socket.bind(port, host, () => {
      join(socket, host);
      resolve();
    }),
  );
}

function serveTcp(port, host) {
  const server = createServer((socket) => socket.on('error', () => undefined).end(ANSWER));
  return new Promise((resolve) => server.listen({ port, host, ipv6Only: host === '::' }, resolve));
}

/** `reached`, `refused` after an error, or `lost` without an answer in time. */
function tryTcp({ from, to, port, wait }) {
  return new Promise((resolve) => {
    const socket = connect({ host: to, port, ...(from ? { localAddress: from } : {}) });
    const end = (outcome) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(outcome);
    };
    const timer = setTimeout(end, wait, 'lost');
    socket.on('data', () => end('reached'));
    socket.on('error', ({ code }) => end(code === 'ECONNREFUSED' ? 'refused' : code));
  });
}

/** The kernel accepts packets of a known flow even after a change of the rules, so each attempt uses a new source port. */
let lastSource = 10_000;

function tryUdp({ from, to, port, wait }) {
  const isV6 = to.includes(':');
  return new Promise((resolve) => {
    const socket = createSocket(isV6 ? 'udp6' : 'udp4');
    let ended = false;
    const end = (outcome) => {
      if (!ended) socket.close();
      ended = true;
      clearTimeout(timer);
      resolve(outcome);
    };
    const timer = setTimeout(end, wait, 'lost');
    socket.on('message', () => end('reached'));
    socket.on('error', ({ code }) => end(REFUSALS.has(code) ? 'refused' : code));
    const ask = () => ended || socket.send('?', (error) => error && socket.emit('error', error));
    // The socket reports a refusal at its next use.
    const askAgain = (millis) => {
      ask();
      if (!ended) setTimeout(askAgain, millis, millis * 4);
    };
    const send = () => socket.connect(port, to, () => askAgain(20));
    socket.bind((lastSource += 1), from ?? (isV6 ? '::' : '0.0.0.0'), send);
  });
}

/** The addresses that answer a packet to a broadcast or multicast address. */
function tryGroup({ to, port, wait }) {
  const socket = createSocket(to.includes(':') ? 'udp6' : 'udp4');
  const answered = new Set();
  socket.on('message', (_message, { address }) => answered.add(address.replace(/%.*/, '')));
  socket.on('error', () => undefined);
  socket.bind((lastSource += 1), () => {
    socket.setBroadcast(true);
    socket.send('?', port, to, () => undefined);
  });
  return new Promise((resolve) => {
    setTimeout(() => {
      socket.close();
      resolve([...answered].join(' '));
    }, wait);
  });
}

const ATTEMPTS = { tcp: tryTcp, udp: tryUdp, group: tryGroup };
const ports = process.argv.slice(2).map(Number);
await Promise.all(
  ports.flatMap((port) => ['0.0.0.0', '::'].flatMap((host) => [serveUdp(port, host), serveTcp(port, host)])),
);
process.stdout.write('ready\n');
for await (const line of createInterface(process.stdin)) {
  const attempt = JSON.parse(line);
  void ATTEMPTS[attempt.protocol](attempt).then((result) =>
    process.stdout.write(`${JSON.stringify({ id: attempt.id, outcome: result })}\n`),
  );
}
process.exit(0);
