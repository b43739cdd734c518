import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { placesOf } from '../src/engines/microvm/places.js';
import { IMAGE } from '../test/support/microvm/service.js';
import { captureOf } from './capture-of.js';
import { forkOnce, type ForkTimes } from './forks.js';
import { median } from './median.js';
import { machineLine, serveOnMicrovm, type MicrovmOptions } from './microvm-service.js';
import { Client } from './neighbours/client.js';

export interface MicrovmSnapshotsOptions extends MicrovmOptions {
  rounds: number;
  mib: number;
  copies: number;
}

const MEMORY_MIB = 192;
const MIB = 1024 * 1024;

/** Snapshots and forks of a virtual machine that runs and has written files: their times, and the disk of a copy. */
export async function snapshotsMicrovm({
  rounds,
  mib,
  copies,
  ...options
}: MicrovmSnapshotsOptions): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  console.log(
    machineLine(
      options,
      `${rounds} rounds, sandboxes of ${MEMORY_MIB} MiB, ${mib} MiB written, ${copies} copies`,
    ),
  );
  const server = await serveOnMicrovm(directory, options, [
    '--preview-host',
    'none',
    '--rate-limit',
    '1000000',
    '--capacity-vcpus',
    '1000',
    '--capacity-memory-mib',
    '1000000',
  ]);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  const captures: number[] = [];
  const sizes: number[] = [];
  const fork: ForkTimes = { first: [], all: [] };
  try {
    const create = async (name: string, image: object) =>
      client.json<{ id: string }>('POST', '/v1/sandboxes?start=true&wait_for=running&wait_timeout=120', {
        name,
        image,
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: MEMORY_MIB, disk_size_mib: 2 * mib + 256 },
        network: { enabled: false },
      });
    const { id } = await create('source', { type: 'oci', reference: IMAGE });
    const write = `dd if=/dev/urandom of=/bench bs=1048576 count=${mib} && sync`;
    await client.json('POST', `/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', write] });
    for (let round = 0; round < rounds; round += 1) {
      const name = `round-${round}`;
      const begun = performance.now();
      await captureOf(client, id, name);
      captures.push(performance.now() - begun);
      const copy = await create(`copy-${round}`, { type: 'disk_snapshot', id: name });
      sizes.push(ownBytes(placesOf(join(directory, 'microvm'), copy.id).directory) / MIB);
      await client.json('DELETE', `/v1/sandboxes/${copy.id}`);
      await client.json('DELETE', `/v1/snapshots/by-name/${name}`);
      if (copies > 0) await forkOnce(client, { sandboxId: id }, copies, fork);
    }
    const row = (name: string, values: readonly number[], digits = 0) => [
      name,
      ...[Math.min(...values), median(values), Math.max(...values)].map((value) => value.toFixed(digits)),
    ];
    const forks = [
      row(`fork of ${copies}, to the first output of the first`, fork.first),
      row(`fork of ${copies}, to the first output of the last`, fork.all),
    ];
    const rows = [row('snapshot, request to end', captures), ...(copies > 0 ? forks : [])];
    console.log(table(['TIME', 'MIN ms', 'P50 ms', 'MOST ms'], rows));
    console.log(`\n${table(['SIZE', 'MIN MiB', 'P50 MiB', 'MOST MiB'], [row('files of a copy', sizes, 1)])}`);
  } finally {
    client.close();
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** The bytes of the files that no other sandbox and no snapshot has. */
function ownBytes(directory: string): number {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .map((name) => statSync(join(directory, name)))
    .filter((found) => found.isFile() && found.nlink === 1)
    .reduce((sum, { blocks }) => sum + blocks * 512, 0);
}
