import { lstatSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { table } from '../src/cli/table.js';
import { IMAGES_DIRECTORY } from '../src/engines/microvm/images/images-directory.js';
import { DIRECTORY, placesOf } from '../src/engines/microvm/places.js';
import { readRecord } from '../src/engines/microvm/read-record.js';
import { captureOf } from './capture-of.js';
import { runCycles, startSandbox, untilEqual } from './cycles.js';
import { groupDirectoriesOf, groupsIn } from './microvm-groups.js';
import { machineLine, serveOnMicrovm, type MicrovmOptions } from './microvm-service.js';
import { Client } from './neighbours/client.js';
import { FIELDS, MEMORY_MIB } from './start/microvm-sandboxes.js';

export interface MicrovmCyclesOptions extends MicrovmOptions {
  cycles: number;
  minutes: number;
}

/** A cycle has up to four virtual machines, and each start keeps a processor busy. */
const AT_ONCE = 2;
const BLOCK = 512;
const MIB = 1024 * 1024;

/** The engine must have the same after many cycles as before them: files, bytes and control groups. */
export async function snapshotCyclesMicrovm(asked: MicrovmCyclesOptions): Promise<void> {
  const { cycles, minutes, ...options } = asked;
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  console.log(machineLine(options, `sandboxes of ${MEMORY_MIB} MiB`));
  const room = ['--rate-limit', '1000000', '--capacity-vcpus', '1000', '--capacity-memory-mib', '1000000'];
  const wide = ['--preview-host', 'none', '--volume-purge-hours', '0', ...room];
  const server = await serveOnMicrovm(directory, options, wide);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  try {
    const first = await startSandbox(client, { name: 'first', ...FIELDS });
    const { monitor } = (await readRecord(placesOf(join(directory, DIRECTORY), first)))!;
    const groups = groupDirectoriesOf(monitor!.pid);
    // The first snapshot makes the directory of all, which stays.
    const snapshot = await captureOf(client, first, 'first');
    await client.json('DELETE', `/v1/snapshots/${snapshot}`);
    await client.json('DELETE', `/v1/sandboxes/${first}`);
    const measure = async () => ({ ...filesOf(directory), groups: groupsIn(groups) });
    const before = await untilEqual(measure, isDeepStrictEqual);
    await runCycles(client, FIELDS, { cycles, minutes, atOnce: AT_ONCE });
    const after = await untilEqual(measure, isDeepStrictEqual, before);
    const rows = Object.entries({ before, after }).map(([name, { paths, bytes, groups: count }]) => [
      name,
      String(paths.length),
      (bytes / MIB).toFixed(3),
      String(count),
    ]);
    console.log(table(['THE ENGINE HAS', 'FILES', 'MiB', 'CONTROL GROUPS'], rows));
    if (isDeepStrictEqual(before, after)) return;
    const more = after.paths.filter((path) => !before.paths.includes(path));
    console.log(`\nNot there before: ${more.join(', ') || 'none'}`);
    process.exitCode = 1;
  } finally {
    client.close();
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** The files and directories of the engine and its images. The bytes of a file with several links count once. */
function filesOf(dataDirectory: string): { paths: string[]; bytes: number } {
  const paths = [DIRECTORY, IMAGES_DIRECTORY].flatMap((folder) =>
    readdirSync(join(dataDirectory, folder), { recursive: true, encoding: 'utf8' }).map((name) =>
      join(folder, name),
    ),
  );
  const found = paths.map((path) => lstatSync(join(dataDirectory, path), { throwIfNoEntry: false }));
  const blocks = new Map(found.map((stat) => [stat?.ino, stat?.isFile() ? stat.blocks : 0]));
  return {
    paths: paths.toSorted(),
    bytes: [...blocks.values()].reduce((sum, count) => sum + count, 0) * BLOCK,
  };
}
