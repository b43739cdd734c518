import { connectionsFor } from '../http/connections.js';
import { descriptorLimit } from '../lib/descriptor-limit.js';
import type { Finding } from '../engine/finding.js';
import { installCommand, type HostSystem } from '../engine/host-system.js';

const OLDEST_NODE = [20, 19] as const;
/** Releases of Node without security fixes (https://github.com/nodejs/release#release-schedule). */
const ENDED_NODE: Readonly<Record<number, string>> = {
  20: '2026-04-30',
  21: '2024-06-01',
  23: '2025-06-01',
  25: '2026-06-01',
};
/** Enough for 2,000 connections. */
const FEW_DESCRIPTORS = 4_096;

export function checkNode(system: HostSystem, version = process.versions.node): Finding {
  const check = 'node';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const remedy = installCommand(system, 'node');
  const isNewEnough = major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
  if (!isNewEnough) {
    const found = `Node ${version}: Sandkeep needs ${OLDEST_NODE.join('.')} or later; 24 is recommended`;
    return { check, state: 'broken', found, remedy };
  }
  const ended = ENDED_NODE[major];
  if (ended === undefined) return { check, state: 'ok', found: `Node ${version}` };
  const found = `Node ${version} works, and has had no security fixes since ${ended}: 24 is recommended`;
  return { check, state: 'missing', found, remedy };
}

/** Alpine and other systems with musl cannot run the embedded PostgreSQL. */
export function checkSystem({ name, kind, hasGlibc }: HostSystem, databaseUrl: string | undefined): Finding {
  const check = 'system';
  if (hasGlibc) return { check, state: 'ok', found: name };
  const found = `${name} has no glibc, so the embedded PostgreSQL does not run, and Sandkeep is not tested here`;
  const remedy = `use the container image, or Debian or Fedora${kind === 'alpine' ? ' in place of Alpine' : ''}`;
  return { check, state: databaseUrl === undefined ? 'broken' : 'missing', found, remedy };
}

/** The service inherits the limit of the shell, the unit or the container that starts it. */
export function checkDescriptors(): Finding {
  const limit = descriptorLimit();
  const check = 'files';
  if (limit === undefined) return { check, state: 'ok', found: 'the system tells no limit of descriptors' };
  const found = `${limit} descriptors, for ${connectionsFor(limit)} connections of the API`;
  if (limit >= FEW_DESCRIPTORS) return { check, state: 'ok', found };
  const remedy =
    'ulimit -n 65536; in a systemd unit LimitNOFILE=65536, for a container --ulimit nofile=65536:65536';
  return { check, state: 'missing', found, remedy };
}
