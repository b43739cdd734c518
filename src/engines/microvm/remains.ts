import { existsSync } from 'node:fs';
import { readdir, realpath, rm, rmdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { InstallationPlace, Remains } from '../../engine/definition.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { mountsBelow } from '../../lib/mount-table.js';
import { explainNoNftables } from '../../machine-network/nftables-probe.js';
import { ignoreMissing } from '../../volumes/storage/guest-path.js';
import { ControlGroups } from './control-groups.js';
import { abandonMachine } from './end-machine.js';
import { readEngineId } from './engine-id.js';
import { heldSandboxes, type HeldSandbox } from './holdings.js';
import { IMAGES_DIRECTORY } from './images/images-directory.js';
import { removeMachineNetwork } from './network/machine-network.js';
import { DIRECTORY, exportsDirectory, placesIn, snapshotsDirectory, type SandboxPlaces } from './places.js';
import { isAlive } from './processes.js';
import { readRecord } from './read-record.js';
import type { RunRecord } from './record.js';
import { SnapshotStore } from './snapshots/snapshot-store.js';

const IMAGES = basename(IMAGES_DIRECTORY);

/**
 * The virtual machines of an installation on this machine, their disks and snapshots, and what they have outside of the
 * data directory: rules of the network and control groups. Images stay: the operator has imported some of them.
 *
 * @param subnet That of the option. Undefined: the installation has chosen one.
 */
export async function findRemains(
  { instanceId, dataDir, isOwn }: InstallationPlace,
  subnet: string | undefined,
): Promise<Remains> {
  const directory = join(dataDir, DIRECTORY);
  if (!existsSync(directory)) return NOTHING;
  if (process.geteuid?.() !== 0)
    throw new ExplainedError('virtual machines belong to root: repeat the command as root, or by sudo');
  const engineId = readEngineId(directory);
  if (engineId !== undefined && !isOwn(engineId))
    throw new ExplainedError(
      `${directory} has the virtual machines of another installation than the database: name the data directory of this one with --data-dir`,
    );
  const held = await heldSandboxes(directory);
  const snapshots = await new SnapshotStore(snapshotsDirectory(directory)).list();
  const others = (await removableIn(directory)).length;
  return {
    inUse: [],
    lines: [
      ...held.map((sandbox) => `sandbox    ${sandbox.identity.sandboxId} (${stateOf(sandbox)})`),
      ...snapshots.map(({ snapshotId }) => `snapshot   ${snapshotId}`),
      ...(others > 0 ? [`directory  ${directory}, without the images`] : []),
    ],
    async remove() {
      // A path of the operator may lead to another disk.
      const place = await realpath(directory);
      const [mount] = await mountsBelow(place);
      if (mount)
        throw new ExplainedError(`${mount.point} is mounted: umount ${mount.point}, and repeat the command`);
      const left = await endAll(directory);
      // The files of a machine that runs must stay, and so must its network.
      if (left.length > 0) return { removed: {}, inUse: [], left };
      // Without the programs of networks no machine had one.
      if ((await explainNoNftables()) === undefined)
        await removeMachineNetwork({ instanceId, directory, subnet }).catch(explainNetwork);
      ControlGroups.removeAll(instanceId);
      for (const name of await removableIn(place))
        await rm(join(place, name), { recursive: true, force: true });
      // It stays where it has images, or is a link.
      await rmdir(directory).catch(() => undefined);
      return {
        removed: {
          sandboxes: held.map(({ identity }) => ({ id: identity.sandboxId })),
          snapshots: snapshots.map(({ snapshotId }) => ({ id: snapshotId })),
        },
        inUse: [],
        left: [],
      };
    },
  };
}

function explainNetwork(cause: Error): never {
  throw new ExplainedError(
    `the virtual machines have ended, and the rules of their network stay (${cause.message}): repeat the command`,
    { cause },
  );
}

const NOTHING: Remains = {
  inUse: [],
  lines: [],
  remove: async () => Promise.resolve({ removed: {}, inUse: [], left: [] }),
};

async function removableIn(directory: string): Promise<string[]> {
  return (await readdir(directory)).filter((name) => name !== IMAGES);
}

function stateOf({ isAlive: isRunning, saved }: HeldSandbox): string {
  if (isRunning) return 'running';
  return saved ? 'paused' : 'stopped';
}

/** Returns the names of those that run on. Others may have begun since the list for people. */
async function endAll(engineDirectory: string): Promise<string[]> {
  const sandboxes = await heldSandboxes(engineDirectory);
  const exports = exportsDirectory(engineDirectory);
  const names = (await readdir(exports).catch(ignoreMissing)) ?? [];
  const readers = await Promise.all(
    names.map(async (name) => {
      const places = placesIn(join(exports, name));
      return { places, record: await readRecord(places) };
    }),
  );
  const left = await Promise.all([...sandboxes, ...readers].map(async (machine) => endOf(machine)));
  return left.flat();
}

async function endOf({
  places,
  record,
}: {
  places: SandboxPlaces;
  record: RunRecord | undefined;
}): Promise<string[]> {
  if (!record || !isAlive(record)) return [];
  return abandonMachine(places, record).then(
    () => [],
    () => [`the virtual machine of ${places.directory}`],
  );
}
