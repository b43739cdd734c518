import { spawnSync } from 'node:child_process';
import type { Finding } from '../../engine/finding.js';
import { installCommand, type HostSystem } from '../../engine/host-system.js';
import { disksOf } from './disk-writes.js';
import type { Resolvers } from '../../machine-network/resolvers.js';
import { sandboxRoom } from './sandbox-room.js';
import { explainSharedLimits } from './shared-limits.js';

const PROGRAMS = ['nft', 'nsenter', 'unshare', 'mount'] as const;

/** Network rules and volumes of the Docker runtime need root and these programs. */
export function examinePrograms(system: HostSystem): Finding[] {
  if (process.platform !== 'linux') return [];
  if (process.geteuid?.() !== 0) {
    return [
      {
        check: 'root',
        state: 'missing',
        found: 'this user is not root, so sandboxes on Docker have neither networks nor volumes',
        remedy: 'sudo sandkeep install --systemd --runtime docker',
      },
    ];
  }
  const root: Finding = { check: 'root', state: 'ok', found: 'this user is root' };
  const lacking = PROGRAMS.filter((program) => spawnSync(program, ['--version']).error !== undefined);
  if (lacking.length === 0) return [root, { check: 'programs', state: 'ok', found: PROGRAMS.join(', ') }];
  const parts = new Set(lacking.map((program) => (program === 'nft' ? 'nftables' : 'util-linux')));
  return [
    root,
    {
      check: 'programs',
      state: 'missing',
      found: `${lacking.join(', ')} cannot be run, so sandboxes on Docker lack networks${lacking.includes('mount') ? ' and volumes' : ''}`,
      remedy: [...parts].map((part) => installCommand(system, part)).join(' && '),
    },
  ];
}

export function examineKernel(): Finding {
  const check = 'kernel';
  const low = explainSharedLimits();
  if (low === undefined) return { check, state: 'ok', found: 'the memory of a sandbox bounds its part' };
  return { check, state: 'missing', found: low.found, remedy: low.remedy };
}

/** The tables of the kernel for all sandboxes together. */
export function examineSandboxRoom(memoryMib: number): Finding {
  const check = 'number of sandboxes';
  const { room, low } = sandboxRoom(memoryMib);
  if (low.length === 0)
    return { check, state: 'ok', found: `memory ends first, with about ${room} sandboxes with networks` };
  const values = low.map(({ name, value }) => `${name} is ${value}`).join(', ');
  return {
    check,
    state: 'missing',
    found: `the kernel has room for about ${room} sandboxes with networks that work at once: ${values}`,
    remedy: `sysctl -w ${low.map(({ remedy }) => remedy).join(' ')}`,
  };
}

export function examineDatabaseDisk(
  { dataDir, volumesDir }: { dataDir: string; volumesDir: string },
  enginePath: string,
): Finding[] {
  const check = 'disk sharing';
  const [disk] = disksOf([dataDir]);
  if (disk === undefined) return [];
  if (!disksOf([enginePath, volumesDir]).includes(disk)) {
    return [{ check, state: 'ok', found: `sandboxes do not write to ${disk}, the disk of the database` }];
  }
  const found = `sandboxes write to ${disk}, the disk of the database: its writes wait for theirs`;
  const remedy =
    'where strangers have sandboxes: put the database on another disk (docs/runtimes.md#disk-writes)';
  return [{ check, state: 'missing', found, remedy }];
}

/** `named`: by the operator, in place of those of the machine. */
export function examineResolvers(
  { addresses, unusable, isFallback }: Resolvers,
  named: readonly string[],
): Finding {
  const check = 'resolvers';
  const asked = named.length > 0 ? named : addresses;
  if (named.length > 0 || !isFallback)
    return { check, state: 'ok', found: `sandboxes ask ${asked.join(', ')}` };
  const why =
    unusable.length === 0
      ? 'this machine names no resolver'
      : `sandboxes cannot ask the resolvers of this machine (${unusable.join(', ')}), which are IPv6 or its own loopback`;
  return {
    check,
    state: 'missing',
    found: `${why}: they ask ${asked.join(', ')}`,
    remedy: 'name IPv4 resolvers with --docker-resolvers, or in /etc/resolv.conf',
  };
}
