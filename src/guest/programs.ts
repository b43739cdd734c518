import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { basename, join } from 'node:path';
import { PACKAGE_ROOT } from '../lib/package-root.js';
import { EMPTY_RECORD } from './record-option.js';

/** Process 1 of every sandbox, and the agent: where they are in it, and how process 1 is called. See `guest/`. */

/** All files of the service in a sandbox. */
export const GUEST_DIRECTORY = '/.sandkeep';
export const PROGRAMS_DIRECTORY = `${GUEST_DIRECTORY}/bin`;
export const INIT_PROGRAM = `${PROGRAMS_DIRECTORY}/init`;
/** Started on first use; see guest/agent/main.c. */
export const AGENT_PROGRAM = `${PROGRAMS_DIRECTORY}/agent`;

/** For images without a PATH. */
export const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

export type Build = 'x86_64' | 'aarch64';
/** By the names of processors that engines use. */
export const BUILDS: Record<string, Build> = {
  x86_64: 'x86_64',
  amd64: 'x86_64',
  aarch64: 'aarch64',
  arm64: 'aarch64',
};

/** C libraries reserve the real-time signals below 34. */
const FIRST_REALTIME = 34;
const LAST_REALTIME = 64;

const MIB = 1024 * 1024;
/** The output of a command in bytes, a second and at once. A line counts 128 bytes more than it has. */
export const OUTPUT = { rate: MIB, burst: 8 * MIB };

const WORKDIR_OPTION = '--workdir=';
const HANDOVER_OPTION = '--handover';

export interface InitOptions {
  command: readonly string[];
  untilExit: boolean;
  stopSignal: number;
  output?: typeof OUTPUT;
  /** The command starts when this file exists. */
  awaited?: string;
  /** The command starts when the sandbox has this host name. */
  hostName?: string | undefined;
  /** Process 1 starts agents for the service. */
  agents?: boolean;
  /** Process 1 takes the command later, so this one is empty. */
  takesHandover?: boolean;
  /** A directory at the end of PATH. */
  appendedPath?: string;
  /** Null: that of the image. */
  workdir?: string | null;
}

/** The programs by their paths in a sandbox. */
export function readPrograms(build: Build): Map<string, Buffer> {
  return new Map(
    [INIT_PROGRAM, AGENT_PROGRAM].map((path) => [
      path,
      readFileSync(join(PACKAGE_ROOT, 'guest', `${basename(path)}-${build}`)),
    ]),
  );
}

export function versionOf(programs: ReadonlyMap<string, Buffer>): string {
  const hash = createHash('sha256');
  for (const program of programs.values()) hash.update(program);
  return hash.digest('hex').slice(0, 12);
}

export function initArguments(options: InitOptions): string[] {
  const {
    command,
    untilExit,
    stopSignal,
    output = OUTPUT,
    awaited,
    hostName,
    appendedPath,
    workdir,
  } = options;
  const entered = [
    ...(workdir == null ? [] : [`${WORKDIR_OPTION}${workdir}`]),
    ...(options.agents === true ? ['--agents'] : []),
  ];
  if (command.length === 0 && options.takesHandover !== true) return entered;
  return [
    ...entered,
    ...(options.takesHandover === true ? [HANDOVER_OPTION] : []),
    ...(untilExit ? ['--until-exit'] : []),
    `--stop-signal=${stopSignal}`,
    `--output-rate=${output.rate}`,
    `--output-burst=${output.burst}`,
    ...(awaited === undefined ? [] : [`--await=${awaited}`]),
    ...(hostName === undefined ? [] : [`--host-name=${hostName}`]),
    ...(appendedPath === undefined ? [] : [`--append-path=${appendedPath}`]),
    EMPTY_RECORD,
    '--',
    ...command,
  ];
}

/** Whether a process 1 with these arguments takes its command later. */
export function takesHandover(args: readonly string[]): boolean {
  return optionsIn(args).includes(HANDOVER_OPTION);
}

/**
 * The working directory that process 1 makes, from its arguments. Undefined: none, also of a sandbox of an earlier
 * release.
 */
export function workdirOf(args: readonly string[]): string | undefined {
  return optionsIn(args)
    .find((arg) => arg.startsWith(WORKDIR_OPTION))
    ?.slice(WORKDIR_OPTION.length);
}

/** The words of the command follow the options. */
function optionsIn(args: readonly string[]): readonly string[] {
  const end = args.indexOf('--');
  return end < 0 ? args : args.slice(0, end);
}

/** Accepts `SIGQUIT`, `quit`, `3` and `RTMIN+3`. Default: SIGTERM. */
export function signalNumber(name: string | undefined): number {
  const { signals } = constants;
  const word = (name ?? '').toUpperCase().replace(/^SIG/, '');
  const [, edge, offset = '0'] = /^(RTMIN|RTMAX)([+-]\d+)?$/.exec(word) ?? [];
  const number = edge
    ? (edge === 'RTMIN' ? FIRST_REALTIME : LAST_REALTIME) + Number(offset)
    : Number(word) || signals[`SIG${word}` as NodeJS.Signals];
  return number >= 1 && number <= LAST_REALTIME ? number : signals.SIGTERM;
}
