import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { WebSocket } from 'ws';
import { table } from '../../src/cli/table.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { sleep } from '../../src/lib/sleep.js';
import { makeBases, NODE_BASE } from '../../test/support/container-image.js';
import { serveOnDocker } from '../docker-service.js';
import type { Server } from '../speed/processes.js';
import { call } from './call.js';

export interface TransferOptions {
  downloadMib: number;
  uploadMib: number;
  sockets: number;
  streamSeconds: number;
  dockerSocket: string;
}

interface Preview {
  host: string;
  port: string;
  token: string;
}

const SERVER = readFileSync(join(PACKAGE_ROOT, 'bench/previews/transfers-server.mjs'), 'utf8');
const MIB = 1_048_576;

/** Large and long exchanges through a preview, with the memory of the service. */
export async function transfers(options: TransferOptions): Promise<void> {
  makeBases();
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const unlimited = ['--sandbox-bandwidth-mbits', '0'];
  const server = await serveOnDocker(options.dockerSocket, join(directory, 'data'), unlimited);
  try {
    const { id } = await call(server, 'POST', '/v1/sandboxes?start=true&wait_for=running', {
      name: 'transfers',
      image: { type: 'oci', reference: NODE_BASE },
      pull_policy: 'never',
      runtime: { cmd: ['node', '--input-type=module', '-e', SERVER] },
      resources: { vcpus: 2, memory_mib: 1_024 },
    });
    const { origin, token } = await call(server, 'POST', `/v1/sandboxes/${id}/previews`, { port: 8_000 });
    const { host, port } = new URL(origin!);
    const preview = { host, port, token: token! };
    while ((await ask(preview, '/')).statusCode !== 200) await sleep(50);
    const rows = [
      await measure(server, `download of ${options.downloadMib} MiB`, () =>
        download(preview, options.downloadMib),
      ),
      await measure(server, `upload of ${options.uploadMib} MiB`, () => upload(preview, options.uploadMib)),
      await measure(server, `${options.sockets} idle WebSockets`, () => idle(preview, options.sockets)),
      await measure(server, `events for ${options.streamSeconds} s`, () =>
        stream(preview, options.streamSeconds),
      ),
    ];
    console.log(table(['EXCHANGE', 'RESULT', 'MiB OF MEMORY BEFORE', 'MOST', 'LOAD'], rows));
    await call(server, 'DELETE', `/v1/sandboxes/${id}`);
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function measure({ pid }: Server, name: string, work: () => Promise<string>): Promise<string[]> {
  const before = residentMib(pid);
  let most = before;
  const timer = setInterval(() => (most = Math.max(most, residentMib(pid))), 100);
  const began = performance.now();
  const result = await work().finally(() => clearInterval(timer));
  const seconds = ((performance.now() - began) / 1_000).toFixed(1);
  return [name, `${result} in ${seconds} s`, before.toFixed(0), most.toFixed(0), loadavg()[0]!.toFixed(1)];
}

function residentMib(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1_024;
}

function headersOf({ host, token }: Preview): Record<string, string> {
  return { host, authorization: `Bearer ${token}` };
}

async function ask(preview: Preview, path: string): Promise<IncomingMessage> {
  const sent = httpRequest({
    host: '127.0.0.1',
    port: preview.port,
    path,
    agent: false,
    headers: headersOf(preview),
  });
  const [answer] = (await once(sent.end(), 'response')) as [IncomingMessage];
  return answer;
}

async function download(preview: Preview, mib: number): Promise<string> {
  let bytes = 0;
  for await (const chunk of await ask(preview, `/bytes/${mib * MIB}`)) bytes += (chunk as Buffer).length;
  return `${bytes / MIB} MiB`;
}

async function upload(preview: Preview, mib: number): Promise<string> {
  const headers = { ...headersOf(preview), 'content-length': mib * MIB };
  const target = { host: '127.0.0.1', port: preview.port, path: '/upload', agent: false };
  const sent = httpRequest({ ...target, method: 'POST', headers });
  const answered = once(sent, 'response');
  const piece = Buffer.alloc(MIB, 'u');
  for (let at = 0; at < mib; at += 1) if (!sent.write(piece)) await once(sent, 'drain');
  sent.end();
  const [answer] = (await answered) as [IncomingMessage];
  return `${Number(await text(answer)) / MIB} MiB`;
}

/** Each gets a message back at the beginning, and after a minute without any. */
async function idle(preview: Preview, count: number): Promise<string> {
  const sockets = Array.from({ length: count }, () => {
    const socket = new WebSocket(`ws://127.0.0.1:${preview.port}/`, { headers: headersOf(preview) });
    return socket.on('error', () => undefined);
  });
  const opened = await Promise.all(
    sockets.map(
      (socket) =>
        new Promise<boolean>((resolve) => {
          socket.once('open', () => resolve(true)).once('close', () => resolve(false));
        }),
    ),
  );
  await sleep(60_000);
  const alive = await Promise.all(
    sockets.map(
      (socket) =>
        new Promise<boolean>((resolve) => {
          if (socket.readyState !== WebSocket.OPEN) return resolve(false);
          socket.once('message', () => resolve(true)).once('close', () => resolve(false));
          socket.send('still there');
        }),
    ),
  );
  for (const socket of sockets) socket.terminate();
  return `${opened.filter(Boolean).length} opened, ${alive.filter(Boolean).length} answered`;
}

async function stream(preview: Preview, seconds: number): Promise<string> {
  let events = 0;
  const answer = await ask(preview, '/events');
  const cut = setTimeout(() => answer.destroy(), seconds * 1_000);
  try {
    for await (const chunk of answer) events += chunk === undefined ? 0 : 1;
  } catch {
    // The end of the measure.
  }
  clearTimeout(cut);
  return `${events} events`;
}
