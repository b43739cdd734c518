import { readdir, stat } from 'node:fs/promises';
import type { Exit, Holding } from '../../engine/runtime.js';
import { instantFromMicros } from '../../lib/instant.js';
import { ignoreMissing } from '../../volumes/storage/guest-path.js';
import { readIdentity, readRunFile, type Identity, type RunFile } from './identity.js';
import { placesOf, sandboxesDirectory, type SandboxPlaces } from './places.js';
import { isAlive } from './processes.js';
import { readSaved, type SavedMemory } from './saved-memory.js';
import type { RunEnd, RunRecord } from './record.js';
import { readRecord } from './read-record.js';

/** A sandbox as its directory describes it. */
export interface HeldSandbox {
  places: SandboxPlaces;
  identity: Identity;
  run: RunFile | undefined;
  record: RunRecord | undefined;
  isAlive: boolean;
  /** The memory of its latest run. Undefined: none is on the disk. */
  saved: SavedMemory | undefined;
}

/** A run counts from the moment at which its first program runs; before, another start may take its place. */
export function hasRun({ record }: HeldSandbox): boolean {
  return record?.startedAt !== undefined && record.readyAt !== undefined;
}

export async function heldSandboxes(engineDirectory: string): Promise<HeldSandbox[]> {
  const names = (await readdir(sandboxesDirectory(engineDirectory)).catch(ignoreMissing)) ?? [];
  const held = await Promise.all(names.map(async (name) => readHeld(engineDirectory, name)));
  return held.filter((sandbox) => sandbox !== undefined);
}

/** Undefined: the engine has nothing of the sandbox, or a crash left a directory without an identity. */
export async function readHeld(engineDirectory: string, sandboxId: string): Promise<HeldSandbox | undefined> {
  const places = placesOf(engineDirectory, sandboxId);
  const identity = await readIdentity(places.identity);
  if (!identity) return undefined;
  const run = await readRunFile(places.runFile);
  // First, so that the record of a supervisor that ends meanwhile is the last one.
  const first = await readRecord(places);
  const alive = first !== undefined && first.end === undefined && isAlive(first);
  const record = alive || first?.end !== undefined ? first : await readRecord(places);
  const saved = alive ? undefined : await readSaved(places);
  return { places, identity, run, record, isAlive: alive, saved };
}

export async function holdingOf(held: HeldSandbox): Promise<Holding> {
  const { identity, run, record } = held;
  const { orgId, sandboxId, imageDigest, firstRunId } = identity;
  const savedMib = held.saved && Math.ceil(held.saved.bytes / MIB);
  const ids = { orgId, sandboxId, runId: run?.runId ?? firstRunId, imageDigest, savedMib };
  const none = { ...ids, state: 'prepared' as const, startedAt: null, finishedAt: null, exit: null };
  if (record?.startedAt === undefined || record.readyAt === undefined) return none;
  const startedAt = instantFromMicros(record.startedAt);
  if (held.isAlive && record.end === undefined) return { ...none, state: 'running', startedAt, exit: null };
  const finishedAt = instantFromMicros(
    record.end?.endedAt ?? (await lastSignOfLife(held.places, record.startedAt)),
  );
  return { ...none, state: 'exited', startedAt, finishedAt, exit: exitOf(record) };
}

/** The supervisor and its monitor were killed, or the machine went down. A supervisor gives a sign each second. */
async function lastSignOfLife({ alive }: SandboxPlaces, startedAt: bigint): Promise<bigint> {
  const sign = await stat(alive, { bigint: true }).then(
    ({ mtimeNs }) => mtimeNs / 1_000n,
    () => startedAt,
  );
  return sign > startedAt ? sign : startedAt;
}

const MIB = 1024 * 1024;
const KILLED = 137;
const GUEST_DIED = 255;

function exitOf({ exit, end }: RunRecord): Exit {
  if (end === undefined) return { code: KILLED, outOfMemory: false };
  if (exit && end.shutdown === 'guest') return exit;
  return { code: codeOf(end), outOfMemory: false };
}

/** Process 1 of the sandbox has said nothing at its end. */
function codeOf({ status, stop, shutdown }: RunEnd): number {
  const signal = status & 0x7f;
  if (signal !== 0) return 128 + signal;
  if (stop !== 'none') return KILLED;
  // Its kernel has failed, or a program has switched it off.
  return shutdown === 'guest' ? GUEST_DIED : KILLED;
}
