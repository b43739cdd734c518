import type { Buffer } from 'node:buffer';
import { instantFromMicros, type Instant } from '../lib/instant.js';
import { READ_ONLY, type Guest } from './guest.js';
import { INIT_PROGRAM } from './programs.js';
import { RECORD_OPTION } from './record-option.js';

/** The end of the command of a run that goes on, from the record of its process 1. See guest/init/record.h. */
export interface CommandEnd {
  /** 128 + the number of the signal that ended it. */
  exitCode: number;
  signal: number | null;
  /** Null: the control group does not say. */
  outOfMemory: boolean | null;
  /** By the clock of the machine of the sandbox. */
  endedAt: Instant;
}

/** `running`: it has not ended. `unknown`: process 1 keeps no record. */
export type CommandState = CommandEnd | 'running' | 'unknown';

const RECORD = /^(\d{1,3}) (\d{1,2}) ([012]) (\d{15,17})\.-*$/;
const RUNNING = /^-/;

/** The record is before the command, which may be long. */
export const RECORD_BYTES = 4096;
const COMMAND_LINE = '/proc/1/cmdline';

/** Reads the first bytes of the command line of process 1. Undefined: it belongs to another program. */
export function readCommandLine(bytes: Buffer): CommandState | undefined {
  const words = bytes.subarray(0, RECORD_BYTES).toString('latin1').split('\0');
  if (words[0] !== INIT_PROGRAM) return undefined;
  // The words of the command follow the options.
  const options = words.includes('--') ? words.slice(0, words.indexOf('--')) : [];
  const record = options.find((word) => word.startsWith(RECORD_OPTION))?.slice(RECORD_OPTION.length);
  if (record === undefined) return 'unknown';
  if (RUNNING.test(record)) return 'running';
  const [, code, signal, oom, micros] = RECORD.exec(record) ?? [];
  if (micros === undefined || Number(code) > 255) return 'unknown';
  return {
    exitCode: Number(code),
    signal: Number(signal) || null,
    outOfMemory: oom === '2' ? null : oom === '1',
    endedAt: instantFromMicros(BigInt(micros)),
  };
}

/** Asks the agent. A guest may forge its answer, which concerns no other sandbox. */
export async function commandStateOf(guest: Guest): Promise<CommandState> {
  const files = guest.files();
  try {
    const handle = await files.open(COMMAND_LINE, READ_ONLY);
    return readCommandLine(await files.read(handle, 0n, RECORD_BYTES)) ?? 'unknown';
  } finally {
    files.end();
  }
}
