import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { table } from '../src/cli/table.js';
import { findBinaries } from '../src/db/embedded/binaries.js';
import { openDataDirectory } from '../src/db/embedded/directory.js';
import { chooseIdentity } from '../src/db/embedded/identity.js';
import { makeCluster } from '../src/db/embedded/server.js';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';

const TARGET_MS = 3_000;

/** Prints the milliseconds from starting the program to its first answered request. Throws when a request fails. */
export async function firstStart(rounds: number): Promise<void> {
  const first: number[] = [];
  const again: number[] = [];
  const floor: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
    const { millis, key } = await startOnce(directory);
    first.push(millis);
    again.push((await startOnce(directory, key)).millis);
    rmSync(directory, { recursive: true, force: true });
    floor.push(await initdbAlone());
  }
  const row = (name: string, values: number[]) => {
    const sorted = values.toSorted((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)]!;
    return [name, ...[sorted[0]!, median, sorted.at(-1)!].map((value) => value.toFixed(0))];
  };
  console.log(
    `Node ${process.versions.node}, ${rounds} rounds; target for the first start: ${TARGET_MS} ms\n`,
  );
  const rows = [
    row('first start, empty directory', first),
    row('of that PostgreSQL alone: initdb', floor),
    row('start again', again),
  ];
  console.log(table(['FROM COMMAND TO FIRST ANSWER', 'MIN ms', 'MEDIAN ms', 'MAX ms'], rows));
}

/** The floor for a start on an empty directory, which also shows the present speed of the machine. */
async function initdbAlone(): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const directory = openDataDirectory(folder);
  const identity = chooseIdentity(findBinaries(), directory.root);
  const begun = performance.now();
  await makeCluster(directory, identity);
  const millis = performance.now() - begun;
  rmSync(folder, { recursive: true, force: true });
  return millis;
}

async function startOnce(directory: string, known?: string): Promise<{ millis: number; key: string }> {
  const begun = performance.now();
  const args = ['serve', '--json', '--port', '0', '--runtime', 'simulated', '--data-dir', directory];
  const child = spawn(
    process.execPath,
    [join(PACKAGE_ROOT, 'bin', 'sandkeep'), ...args, '--log-level', 'error'],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  try {
    const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
    const ready = JSON.parse(line) as { address: string; first_key?: { key: string } };
    const key = ready.first_key?.key ?? known ?? '';
    const response = await fetch(`${ready.address}/v1/sandboxes`, {
      headers: { authorization: `Bearer ${key}` },
    });
    if (response.status !== 200) throw new Error(`the first request was answered with ${response.status}`);
    return { millis: performance.now() - begun, key };
  } finally {
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
}
