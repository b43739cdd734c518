// Requests over TLS, from inside a sandbox, or over HTTP to an address (`plain`). Plain JavaScript, because a Node there
// runs its text. The argument is JSON:
// { host, proxy?: { host, port, to? }, plain?: { host, port }, header, measure: 'requests', connections, seconds }, or
// { host, …, measure: 'download', bytes }, or { host, …, measure: 'connections', seconds }. It prints JSON.
import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls } from 'node:tls';

const task = JSON.parse(process.argv[1]);
const END = Buffer.from('\r\n\r\n');

async function open() {
  let socket;
  if (task.plain) {
    socket = connectTcp({ ...task.plain, noDelay: true });
    await once(socket, 'connect');
    return socket;
  }
  if (task.proxy) {
    const tcp = connectTcp({ ...task.proxy, noDelay: true });
    await once(tcp, 'connect');
    // A proxy without `to` passes each connection on to its own server.
    if (task.proxy.to) {
      tcp.write(`CONNECT ${task.proxy.to}:443 HTTP/1.1\r\nhost: ${task.host}:443\r\n\r\n`);
      const [answer] = await once(tcp, 'data');
      if (!String(answer).startsWith('HTTP/1.1 200')) throw new Error(`the proxy answered ${answer}`);
    }
    socket = connectTls({ socket: tcp, servername: task.host, rejectUnauthorized: false });
  } else {
    const options = { host: task.host, port: 443, servername: task.host, noDelay: true };
    socket = connectTls({ ...options, rejectUnauthorized: false });
  }
  await once(socket, 'secureConnect');
  return socket;
}

const request = (path) =>
  `GET ${path} HTTP/1.1\r\nhost: ${task.host}\r\nuser-agent: bench\r\naccept: */*\r\nauthorization: ${task.header}\r\n\r\n`;

/** Sends a request and calls back when its answer has arrived whole. */
function exchange(socket, path, done) {
  let left;
  let head = Buffer.alloc(0);
  const take = (chunk) => {
    if (left === undefined) {
      head = head.length === 0 ? chunk : Buffer.concat([head, chunk]);
      const end = head.indexOf(END);
      if (end < 0) return;
      const text = head.toString('latin1', 0, end);
      if (!text.startsWith('HTTP/1.1 200')) throw new Error(`the server answered ${text}`);
      left = Number(/content-length: *(\d+)/i.exec(text)[1]) - (head.length - end - END.length);
    } else {
      left -= chunk.length;
    }
    if (left > 0) return;
    socket.off('data', take);
    done();
  };
  socket.on('data', take);
  socket.write(request(path));
}

const measures = {
  async requests() {
    const sockets = await Promise.all(Array.from({ length: task.connections }, open));
    const times = [];
    let count = 0;
    const start = performance.now();
    // The first tenth warms both ends up.
    const counted = start + task.seconds * 100;
    const end = start + task.seconds * 1_000;
    await Promise.all(
      sockets.map(
        (socket) =>
          new Promise((resolve, reject) => {
            socket.on('error', reject).on('close', () => reject(new Error('the connection was closed')));
            const next = () => {
              const before = performance.now();
              if (before > end) return resolve();
              exchange(socket, '/small', () => {
                count += 1;
                if (before > counted) times.push(performance.now() - before);
                next();
              });
            };
            next();
          }),
      ),
    );
    times.sort((a, b) => a - b);
    const at = (share) => times[Math.floor(times.length * share)];
    return { count, perSecond: times.length / (task.seconds * 0.9), p50: at(0.5), p99: at(0.99) };
  },
  async download() {
    const socket = await open();
    const start = performance.now();
    await new Promise((resolve) => exchange(socket, `/bytes/${task.bytes}`, resolve));
    return { mibPerSecond: task.bytes / 1_048_576 / ((performance.now() - start) / 1_000) };
  },
  async connections() {
    const end = performance.now() + task.seconds * 1_000;
    let count = 0;
    while (performance.now() < end) {
      const socket = await open();
      await new Promise((resolve) => exchange(socket, '/small', resolve));
      socket.destroy();
      count += 1;
    }
    return { perSecond: count / task.seconds };
  },
};

process.stdout.write(`${JSON.stringify(await measures[task.measure]())}\n`);
process.exit(0);
