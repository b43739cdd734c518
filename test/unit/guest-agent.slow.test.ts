import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { describe } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { GuestAgent } from '../../src/guest/agent.js';
import { guestConformance } from '../engines/guest-conformance.js';
import type { Census, GuestTarget } from '../engines/guest/target.js';

const BUSYBOX = '/bin/busybox';
const APPLETS = [
  'sh',
  'sleep',
  'cat',
  'echo',
  'env',
  'pwd',
  'true',
  'stty',
  'tty',
  'nc',
  'head',
  'wc',
  'seq',
  'sed',
  'xargs',
  'touch',
  'mkdir',
  'mkfifo',
  'mv',
  'rm',
  'kill',
  'yes',
];

interface Build {
  program: string;
  /** A command line to put in front. */
  under: string[];
}

/** The agent as a process of this machine. The repository has it without the permission to execute it. */
function spawnAgent(directory: string, { program, under }: Build) {
  const executable = join(directory, 'agent');
  copyFileSync(join(PACKAGE_ROOT, 'guest', program), executable);
  chmodSync(executable, 0o755);
  const [command, ...args] = [...under, executable];
  const process = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  return { process, stream: Duplex.from({ readable: process.stdout, writable: process.stdin }) };
}

async function openAgent(build: Build): Promise<GuestTarget> {
  const directory = realpathSync(mkdtempSync(join(tmpdir(), 'sandkeep-guest-')));
  const bin = join(directory, 'bin');
  mkdirSync(bin);
  for (const applet of APPLETS) symlinkSync(BUSYBOX, join(bin, applet));
  const { process, stream } = spawnAgent(directory, build);
  const guest = new GuestAgent(stream, { env: ['COLOUR=blue', `PATH=${bin}`], cwd: '/' });
  await guest.opened();
  const pid = process.pid!;
  return {
    guest,
    directory: mkdtempSync(join(directory, 'work-')),
    census: () => Promise.resolve(censusOf(pid)),
    close: async () => {
      guest.close();
      if (process.exitCode === null) await once(process, 'exit');
      rmSync(directory, { recursive: true });
    },
  };
}

function censusOf(pid: number): Census {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
    .trim()
    .split(' ')
    .filter(Boolean);
  return {
    processes: children.length,
    zombies: children.filter((child) => / Z /.test(statOf(child))).length,
    descriptors: descriptorsOf(pid).length,
  };
}

/** The agent shows them to root alone. */
function descriptorsOf(pid: number): string[] {
  return userInfo().uid === 0 ? readdirSync(`/proc/${pid}/fd`) : [];
}

function statOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return '';
  }
}

const EMULATOR = '/usr/bin/qemu-aarch64-static';
const needsBusybox = existsSync(BUSYBOX)
  ? undefined
  : `there is no ${BUSYBOX} (on Debian: apt-get install busybox-static)`;
const isOn = (arch: string) => process.platform === 'linux' && process.arch === arch;

for (const [program, under, missing] of [
  ['agent-x86_64', [], needsBusybox ?? (isOn('x64') ? undefined : 'it needs Linux on x86-64')],
  [
    'agent-aarch64',
    isOn('arm64') ? [] : [EMULATOR],
    needsBusybox ??
      (isOn('arm64') || existsSync(EMULATOR)
        ? undefined
        : `there is no ${EMULATOR} (on Debian: apt-get install qemu-user-static)`),
  ],
] as const) {
  if (missing !== undefined) console.warn(`the tests of ${program} are SKIPPED: ${missing}`);
  describe.skipIf(missing !== undefined)(program, () => {
    guestConformance(() => openAgent({ program, under: [...under] }));
  });
}
