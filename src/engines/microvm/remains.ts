import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Remains } from '../../engine/definition.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { ControlGroups } from './control-groups.js';
import { endMachine } from './end-machine.js';
import { heldSandboxes, type HeldSandbox } from './holdings.js';
import { removeMachineNetwork } from './network/machine-network.js';
import { DIRECTORY, snapshotsDirectory } from './places.js';
import { SnapshotStore } from './snapshots/snapshot-store.js';

/**
 * The virtual machines of an installation on this machine, and what they have outside of the data directory: rules of
 * the network and control groups.
 *
 * @param subnet That of the option. Undefined: the installation has chosen one.
 */
export async function findRemains({
  instanceId,
  dataDir,
  subnet,
}: {
  instanceId: string;
  dataDir: string;
  subnet: string | undefined;
}): Promise<Remains> {
  if (process.geteuid?.() !== 0)
    throw new ExplainedError('virtual machines belong to root: repeat the command as root, or by sudo');
  const directory = join(dataDir, DIRECTORY);
  if (!existsSync(directory)) return NOTHING;
  const held = await heldSandboxes(directory);
  const snapshots = await new SnapshotStore(snapshotsDirectory(directory)).list();
  return {
    inUse: [],
    lines: [
      ...held.map((sandbox) => `sandbox    ${sandbox.identity.sandboxId} (${stateOf(sandbox)})`),
      ...snapshots.map(({ snapshotId }) => `snapshot   ${snapshotId}`),
      `directory  ${directory}`,
    ],
    async remove() {
      const left = await endAll(held);
      // The files of a machine that runs must stay, and so must its network.
      if (left.length > 0) return { removed: {}, inUse: [], left };
      await removeMachineNetwork({ instanceId, directory, subnet });
      ControlGroups.removeAll(instanceId);
      await rm(directory, { recursive: true, force: true });
      return {
        removed: {
          sandboxes: held.map(({ identity }) => ({ id: identity.sandboxId })),
          snapshots: snapshots.map(({ snapshotId }) => ({ id: snapshotId })),
          directories: [{ path: directory }],
        },
        inUse: [],
        left: [],
      };
    },
  };
}

const NOTHING: Remains = {
  inUse: [],
  lines: [],
  remove: async () => Promise.resolve({ removed: {}, inUse: [], left: [] }),
};

function stateOf({ isAlive, saved }: HeldSandbox): string {
  if (isAlive) return 'running';
  return saved ? 'paused' : 'stopped';
}

/** Returns the names of those that run on. */
async function endAll(held: readonly HeldSandbox[]): Promise<string[]> {
  const left = await Promise.all(
    held.map(async ({ identity, places, record, isAlive }) => {
      if (!isAlive || !record) return [];
      return endMachine(places, record, 0).then(
        () => [],
        () => [`the virtual machine of the sandbox ${identity.sandboxId}`],
      );
    }),
  );
  return left.flat();
}
