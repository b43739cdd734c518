import type { Caller } from '../../access/caller.js';
import { requireScope } from '../../access/required-scope.js';
import type { Context } from '../../context.js';
import type { Sql } from '../../db/pool.js';
import { ApiError } from '../../http/errors.js';
import { checkLabels } from '../../lib/labels.js';
import { refuseMounts } from '../../sandboxes/admission/key-labels.js';
import { volumesOf } from '../../sandboxes/admission/mount-volumes.js';
import { fits } from '../../sandboxes/placement/amounts.js';
import { NAME_RULE, SANDBOX_NAME } from '../../spec/names.js';
import { refuse } from '../../spec/refuse.js';
import type { RunMount, RunSpec } from '../../spec/run-spec.js';
import { checkCap } from '../../volumes/check-cap.js';
import { copySources, type CopiedSource } from '../../volumes/copy-queries.js';
import { getCapacity } from '../../workers/queries.js';
import { freeNumbers } from './queries.js';
import type { ForkRequest } from './schema.js';

/** Each is a directory or a disk that is filled before the copies start. */
export const MOST_VOLUME_COPIES = 100;
/** The names of 10,000 sandboxes may be taken before. */
const HIGHEST_NUMBER = 10_000;

function invalid(field: string, message: string): never {
  throw new ApiError('invalid_request', message, { field });
}

/** Refuses what no state of the store makes right. */
export function checkRequest({ count, names, name_prefix: prefix }: ForkRequest): void {
  if (names && prefix !== undefined) invalid('name_prefix', 'names and name_prefix exclude each other');
  if (prefix !== undefined && !SANDBOX_NAME.test(`${prefix}-1`))
    invalid('name_prefix', `name_prefix is the beginning of names: ${NAME_RULE}`);
  if (!names) return;
  if (names.length !== count)
    invalid('names', `names has ${names.length} entries, and count is ${count}: name each copy, or none`);
  for (const [index, name] of names.entries()) {
    const field = `names[${index}]`;
    if (!SANDBOX_NAME.test(name)) invalid(field, NAME_RULE);
    const first = names.indexOf(name);
    if (first !== index) invalid(field, `names[${first}] is the same: each copy needs a name of its own`);
  }
}

export function refuseBadLabels(labels: Record<string, string>): void {
  const bad = checkLabels(labels);
  if (bad) invalid(`labels.${bad.key}`, bad.message);
}

/** The names of the copies. A copy or another sandbox may take one before they are inserted. */
export async function namesOf(
  tx: Sql,
  orgId: string,
  { count, names, name_prefix }: ForkRequest,
  sourceName: string,
): Promise<string[]> {
  if (names) return names;
  const prefix = name_prefix ?? sourceName;
  const numbers = await freeNumbers(tx, orgId, { prefix, count, highest: HIGHEST_NUMBER });
  if (numbers.length < count) {
    throw new ApiError(
      'name_already_exists',
      `the names "${prefix}-1" to "${prefix}-${HIGHEST_NUMBER}" are taken: send another name_prefix`,
      { name_prefix: prefix },
    );
  }
  const made = numbers.map((number) => `${prefix}-${number}`);
  const bad = made.find((name) => !SANDBOX_NAME.test(name));
  if (bad !== undefined)
    invalid('name_prefix', `"${bad}" is too long for a name: send a shorter name_prefix`);
  return made;
}

export interface CopiedMounts {
  mounts: RunMount[];
  /** The ids of managed volumes that all copies mount. */
  shared: string[];
  /** Managed volumes of which each copy gets one of its own. */
  copied: CopiedSource[];
}

/** The mounts of the copies. The locks keep the volumes until the copies are in the store. */
export async function mountsOfCopies(
  ctx: Context,
  tx: Sql,
  caller: Caller,
  { mounts }: RunSpec,
  { volumes: wanted, count }: ForkRequest,
): Promise<CopiedMounts> {
  if (mounts.every(({ type }) => type === 'tmpfs')) return { mounts, shared: [], copied: [] };
  if (wanted === undefined)
    refuse(
      'volumes',
      'the sandbox mounts volumes: send "share" to mount the same ones in its copies, or "copy" to give each copy its own',
    );
  if (wanted === 'copy') refuseUncopied(ctx, caller, mounts);
  const written = mounts.find(({ type, options }) => type === 'disk_image' && options?.readonly !== true);
  if (written)
    refuse(
      'volumes',
      `the disk image at ${written.guest} can be written to, so one sandbox has it at a time: fork a sandbox without it`,
    );
  refuseMounts(caller, { mounts });
  const { named } = await volumesOf(tx, caller.orgId, { mounts }, ctx.runtime);
  const ids = [...named.values()];
  if (wanted === 'share') return { mounts, shared: ids, copied: [] };
  const copied = await copySources(tx, caller.orgId, ids);
  if (copied.length * count > MOST_VOLUME_COPIES)
    refuse(
      'volumes',
      `${count} copies of ${copied.length} volumes are more than ${MOST_VOLUME_COPIES} volumes: ask for fewer copies, or send "share"`,
    );
  for (const { capacity_gib } of copied) await checkCap(tx, ctx.runtime, caller.orgId, capacity_gib);
  return { mounts, shared: [], copied };
}

function refuseUncopied({ runtime }: Context, caller: Caller, mounts: readonly RunMount[]): void {
  if (runtime.volumes !== undefined)
    refuse(
      'volumes',
      `the ${runtime.name} runtime keeps the files of volumes, and copies none: send "share", or copy their files into others first`,
    );
  const ofHost = mounts.find(
    ({ type, options }) => (type === 'bind' || type === 'disk_image') && options?.readonly !== true,
  );
  if (ofHost)
    refuse(
      'volumes',
      `the mount at ${ofHost.guest} is a part of the host volume, which the organization has once: send "share", or mount it read-only`,
    );
  // Each copy gets new volumes.
  requireScope(caller, 'volumes:write');
}

/** Copies that can never run side by side would wait for each other. */
export async function refuseTooMany(
  ctx: Context,
  tx: Sql,
  workerId: string,
  { vcpus, memoryMib, diskMib }: RunSpec,
  count: number,
): Promise<void> {
  if (ctx.runtime.placesRuns) return;
  const capacity = await getCapacity(tx, workerId);
  if (!capacity) refuse('count', 'the engine with the disk of the sandbox is given up');
  const needs = { vcpus: count * vcpus, memoryMib: count * memoryMib, diskMib: count * (diskMib ?? 0) };
  const room = { vcpus: capacity.vcpus, memoryMib: capacity.memory_mib, diskMib: capacity.disk_mib };
  if (fits(needs, room)) return;
  refuse(
    'count',
    `${count} copies need ${needs.vcpus} vCPUs, ${needs.memoryMib} MiB of memory and ${needs.diskMib} MiB of disk, and the engine has ${room.vcpus}, ${room.memoryMib} and ${room.diskMib ?? 'any'}: ask for fewer, or send "start": false`,
  );
}
