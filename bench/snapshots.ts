import Docker from 'dockerode';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { captureOf } from './capture-of.js';
import { serveOnDocker } from './docker-service.js';
import { forks } from './forks.js';
import { median } from './median.js';
import { Client } from './neighbours/client.js';

export interface SnapshotsOptions {
  rounds: number;
  mib: number;
  copies: number;
  prepared: number;
  image: string;
  dockerSocket: string;
}

const TAG = 'sandkeep-bench-commit';

/** Snapshots of a sandbox that has written files, beside commits of its container by the engine alone, in turns. */
export async function snapshots({
  rounds,
  mib,
  copies,
  prepared,
  image,
  dockerSocket,
}: SnapshotsOptions): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const server = await serveOnDocker(dockerSocket, directory, [
    '--rate-limit',
    '1000000',
    '--capacity-vcpus',
    '1000',
    '--docker-prepared-networks',
    `${prepared}`,
  ]);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  const docker = new Docker({ socketPath: dockerSocket });
  const times: Record<'snapshot' | 'commit', number[]> = { snapshot: [], commit: [] };
  try {
    const { id } = await client.json<{ id: string }>(
      'POST',
      '/v1/sandboxes?start=true&wait_for=running&wait_timeout=120',
      {
        name: 'source',
        image: { type: 'oci', reference: image },
        runtime: { cmd: ['sleep', '1000000'] },
        resources: { vcpus: 1, memory_mib: 256 },
      },
    );
    const write = `dd if=/dev/urandom of=/bench bs=1048576 count=${mib} && sync`;
    await client.json('POST', `/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', write] });
    const label = [`dev.sandkeep.sandbox=${id}`];
    const [container] = await docker.listContainers({ filters: { label } });
    for (let round = 0; round < rounds; round += 1) {
      const name = `round-${round}`;
      times.snapshot.push(await timed(async () => captureOf(client, id, name)));
      await client.json('DELETE', `/v1/snapshots/by-name/${name}`);
      times.commit.push(
        await timed(async () => docker.getContainer(container!.Id).commit({ repo: TAG, tag: name })),
      );
      await docker.getImage(`${TAG}:${name}`).remove();
    }
    const [ours, theirs] = [median(times.snapshot), median(times.commit)];
    const row = (name: string, values: readonly number[]) => [
      name,
      ...[Math.min(...values), median(values), Math.max(...values)].map((ms) => ms.toFixed(0)),
    ];
    const rows = [row('snapshot, request to end', times.snapshot), row('docker commit', times.commit)];
    console.log(table([`${mib} MiB WRITTEN`, 'MIN ms', 'MEDIAN ms', 'MAX ms'], rows));
    console.log(`\nsnapshot / commit: ${(ours / theirs).toFixed(2)}, by ${rounds} rounds`);
    if (copies > 0)
      await forks(client, dockerSocket, { sandboxId: id, containerId: container!.Id }, { rounds, copies });
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}
