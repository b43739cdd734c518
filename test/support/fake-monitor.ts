import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, onTestFinished } from 'vitest';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { placesOf, type SandboxPlaces } from '../../src/engines/microvm/places.js';
import type { RunRecord } from '../../src/engines/microvm/record.js';
import { startSupervisor, type SupervisorOptions } from '../../src/engines/microvm/supervisor.js';
import { newId } from '../../src/lib/uuid.js';
import { until } from './polling.js';

/** A program of the shell in the place of QEMU, which says what a hostile monitor could say. */

export const SHELL = '/bin/bash';
/** Above those of installations. */
export const USER = 0x7fff_fff0;

const reason = whyNot();
if (reason !== undefined) console.warn(`the tests of supervisors of virtual machines are SKIPPED: ${reason}`);
export const describeSupervisor =
  reason === undefined || process.env['SANDKEEP_TEST_MICROVM'] === 'required'
    ? describe
    : (name: string, body: () => void) => describe.skip(`${name} — SKIPPED: ${reason}`, body);

function whyNot(): string | undefined {
  if (process.platform !== 'linux') return 'they need Linux';
  if (process.geteuid?.() !== 0) return 'they need root';
  return existsSync(SHELL) ? undefined : `there is no ${SHELL}`;
}

/** The descriptors of the script are those of QEMU: QMP, control, output, console. */
export const START = `
  exec 2>&1
  echo '{"QMP": {"version": {}}}' >&6
  read -r capabilities <&6
  read -r continue <&6
  echo '{"timestamp": {"seconds": 1}, "event": "RESUME"}' >&6
`;
export const READY = `${START} echo ready >&7\n`;

export interface Supervised {
  directory: string;
  places: SandboxPlaces;
  ended: Promise<void>;
  record(): Promise<RunRecord | undefined>;
  untilRecord(holds: (record: RunRecord) => boolean): Promise<RunRecord>;
  /** The text that the monitor wrote to its console and its error output. */
  console(): string;
}

/** It ends with the test. */
export function supervise(script: string, options: Partial<SupervisorOptions> = {}): Supervised {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-supervised-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const sandboxId = newId();
  const places = placesOf(directory, sandboxId);
  mkdirSync(places.run, { recursive: true, mode: 0o700 });
  return superviseAgain({ directory, places }, script, options);
}

/** Another supervisor in the same directory. */
export function superviseAgain(
  { directory, places }: Pick<Supervised, 'directory' | 'places'>,
  script: string,
  options: Partial<SupervisorOptions> = {},
): Supervised {
  const changes = openSync(join(directory, 'changes'), 'a');
  try {
    const { ended } = startSupervisor({
      namespace: undefined,
      runDirectory: places.run,
      user: USER,
      alsoGroup: undefined,
      joined: [],
      changes,
      files: [],
      diskFileMib: 1,
      monitor: [SHELL, '-c', script],
      ...options,
    });
    const record = async () => readRecord(places);
    onTestFinished(async () => end({ record, ended }));
    return {
      directory,
      places,
      ended,
      record,
      untilRecord: async (holds) =>
        (await until(record, (found) => found !== undefined && holds(found), 60_000))!,
      console: () =>
        ['console.1', 'console']
          .map((name) => join(places.run, name))
          .map((path) => (existsSync(path) ? readFileSync(path, 'latin1') : ''))
          .join(''),
    };
  } finally {
    closeSync(changes);
  }
}

/** A supervisor ends with its monitor, and that one with `kill`. */
async function end({ record, ended }: Pick<Supervised, 'record' | 'ended'>): Promise<void> {
  const supervisor = (await record())?.supervisor;
  try {
    if (supervisor) process.kill(supervisor.pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
  await ended;
}
