import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PACKAGE_ROOT } from '../../../src/lib/package-root.js';
import { apiOf } from './api.js';
import { fill, startWaiting, stopWaiting } from './fill.js';
import { historyOf } from './history.js';
import { makeImages, removeImages } from './images.js';

const PRICES = {
  currency: 'EUR',
  prices: {
    vcpu_hour: '0.04',
    memory_gib_hour: '0.005',
    disk_gib_hour: '0.0001',
    storage_gib_hour: '0.0001',
  },
};
const MEMBERS = [
  ['ada@example.com', 'Ada Okafor', 'owner'],
  ['amelia@example.com', 'Amelia Brandt', 'developer'],
  ['chen@example.com', 'Chen Wei', 'developer'],
  ['farid@example.com', 'Farid Nouri', 'finance'],
  ['grete@example.com', 'Grete Holm', 'auditor'],
  ['noor@example.com', 'Noor van Dijk', 'admin'],
] as const;
const HISTORY_DAYS = 45;

/** A running service whose organization is filled. */
export interface Filled {
  /** Sandboxes have theirs by name; `volume`, `snapshot`, `template` and `webhook` have one each. */
  ids: Record<string, string>;
  /** A new link that signs the owner in. */
  link: () => string;
  startWaiting: () => Promise<void>;
  stopWaiting: () => Promise<void>;
  stop: () => Promise<void>;
}

/** Starts `sandkeep serve` on the Docker engine of this machine with a new data directory, and fills it. */
export async function startFilled(): Promise<Filled> {
  makeImages();
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-pictures-'));
  const data = join(directory, 'data');
  const prices = join(directory, 'prices.json');
  writeFileSync(prices, JSON.stringify(PRICES));
  const program = join(PACKAGE_ROOT, 'bin', 'sandkeep');
  const run = (...args: string[]) =>
    execFileSync(program, [...args, '--data-dir', data], { encoding: 'utf8' });
  const service = spawn(
    program,
    [
      'serve',
      `--data-dir=${data}`,
      '--port=0',
      '--preview-port=0',
      '--runtime=docker',
      // Room for one vCPU more than what runs: two sandboxes of two vCPUs wait.
      '--capacity-vcpus=28',
      '--capacity-memory-mib=65536',
      `--price-book=${prices}`,
      '--log-level=error',
      '--json',
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const stop = async () => {
    const gone = new Promise((resolve) => service.once('exit', resolve));
    service.kill('SIGTERM');
    await gone;
    run('uninstall', '--yes');
    removeImages();
    rmSync(directory, { recursive: true, force: true });
  };
  try {
    const { address: url, first_key } = await started(service.stdout);
    const { key, org } = first_key;
    run('quota', 'set', '--org', org.slug, 'max_sandboxes=36', 'max_snapshots=20');
    const history = join(directory, 'history.jsonl');
    writeFileSync(history, historyOf(org.id, HISTORY_DAYS));
    run('import', history);
    for (const [email, name, role] of MEMBERS) {
      run('member', 'add', '--org', org.slug, '--email', email, '--name', name, '--role', role);
    }
    const api = apiOf(url, key);
    const ids = await fill(api);
    await startWaiting(api, ids);
    const link = () => {
      const [email] = MEMBERS[0];
      const made = run('member', 'link', '--org', org.slug, '--port', new URL(url).port, '--json', email);
      return (JSON.parse(made) as { link: string }).link;
    };
    return {
      ids,
      link,
      startWaiting: () => startWaiting(api, ids),
      stopWaiting: () => stopWaiting(api, ids),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

interface Started {
  address: string;
  first_key: { key: string; org: { id: string; slug: string } };
}

async function started(output: NodeJS.ReadableStream): Promise<Started> {
  for await (const line of createInterface({ input: output })) return JSON.parse(line) as Started;
  throw new Error('the service ended before it was ready: its log is above');
}
