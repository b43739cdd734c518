import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import type { IssuedPair } from './certificates.js';
import { freePort } from './free-port.js';
import { kill, until } from './processes.js';

const hasHaproxy = spawnSync('haproxy', ['-v']).status === 0;
const isRequired = process.env['SANDKEEP_TEST_HAPROXY'] === 'required';
if (!hasHaproxy && !isRequired) {
  console.warn('the test of rolling restarts is SKIPPED: there is no haproxy (Debian: haproxy)');
}

/** The column "stot" of the statistics. */
const TOTAL_OF_SESSIONS = 7;

export const describeHaproxy = describe.skipIf(!hasHaproxy && !isRequired);

export interface Haproxy {
  port: number;
  /** The number of servers that get requests. */
  serversUp(): Promise<number>;
  /** The requests and WebSockets that each server has received, in the order of their ports. */
  sessions(): Promise<number[]>;
  err(): string;
  close(): Promise<void>;
}

/** Runs the example of the documents, with other addresses. `replace`: further texts of it, and their replacements. */
export async function startHaproxy(
  servers: readonly number[],
  pair: IssuedPair,
  replace: readonly (readonly [string, string])[] = [],
): Promise<Haproxy> {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-haproxy-'));
  const [port, statsPort] = [await freePort(), await freePort()];
  const certificate = join(folder, 'pair.pem');
  writeFileSync(certificate, pair.cert + pair.key, { mode: 0o600 });
  const changes = [
    ['maxconn 20000', 'maxconn 200'],
    ['bind :443 ', `bind 127.0.0.1:${port} `],
    ['/etc/haproxy/sandkeep.pem', certificate],
    ['10.0.0.11:8080', `127.0.0.1:${servers[0]}`],
    ['10.0.0.12:8080', `127.0.0.1:${servers[1]}`],
    ...replace,
  ] as const;
  let config = readFileSync(join(PACKAGE_ROOT, 'examples', 'haproxy.cfg'), 'utf8');
  for (const [from, to] of changes) {
    if (!config.includes(from)) throw new Error(`the example lacks "${from}"`);
    config = config.replace(from, to);
  }
  config += `\nfrontend stats\n    bind 127.0.0.1:${statsPort}\n    stats enable\n    stats uri /\n`;
  const file = join(folder, 'haproxy.cfg');
  writeFileSync(file, config);
  const child = spawn('haproxy', ['-db', '-f', file], { stdio: ['ignore', 'pipe', 'pipe'] });
  let err = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (err += String(chunk)));
  const exited = once(child, 'close');
  /** A row for each server. */
  const statistics = async () => {
    const answer = await fetch(`http://127.0.0.1:${statsPort}/;csv`).catch(() => undefined);
    const rows = (await answer?.text())?.split('\n') ?? [];
    return rows.filter((row) => /^sandkeep,(one|two),/.test(row));
  };
  const serversUp = async () => (await statistics()).filter((row) => row.includes(',UP,')).length;
  await until(
    () => `haproxy has found both servers: ${err}`,
    async () => {
      if (child.exitCode !== null) throw new Error(`haproxy ended: ${err}`);
      return (await serversUp()) === 2;
    },
    60_000,
    100,
  );
  return {
    port,
    serversUp,
    sessions: async () => (await statistics()).map((row) => Number(row.split(',')[TOTAL_OF_SESSIONS])),
    err: () => err,
    async close() {
      kill('SIGKILL', child.pid!);
      await exited;
      rmSync(folder, { recursive: true });
    },
  };
}
