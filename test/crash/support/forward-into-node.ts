import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** In the network namespace of the node. Sockets with a path belong to no network. */
const LISTENER = `
  const [port, path] = process.argv.slice(1);
  const { connect, createServer } = require('node:net');
  createServer((socket) => {
    const far = connect(path);
    for (const [from, to] of [[socket, far], [far, socket]]) from.on('error', () => to.destroy()).pipe(to);
  }).listen(Number(port), '127.0.0.1', () => console.log('ready'));
`;

/**
 * Gives a node this port of the loopback address of the machine, as the same port of its own. Returns a function that
 * ends it.
 */
export async function forwardInto(node: number, port: number): Promise<() => void> {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-forward-'));
  const path = join(folder, 'socket');
  const server = createServer((socket) => {
    const far = connect(port, '127.0.0.1');
    far.on('error', () => socket.destroy()).pipe(socket);
    socket.on('error', () => far.destroy()).pipe(far);
  });
  server.listen(path);
  await once(server, 'listening');
  const inside = [`--net=/var/run/netns/skk${node}`, process.execPath, '-e', LISTENER, String(port), path];
  const child = spawn('nsenter', inside, { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(child.stdout, 'data');
  return () => {
    child.kill('SIGKILL');
    server.close();
    rmSync(folder, { recursive: true });
  };
}
