import { spawn, type ChildProcessByStdio } from 'node:child_process';
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
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Duplex, type Readable, type Writable } from 'node:stream';
import { describe } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { GuestAgent } from '../../src/runtimes/guest/agent.js';
import { guestConformance } from '../runtimes/guest-conformance.js';
import type { Census, GuestTarget } from '../runtimes/guest/target.js';

const BUSYBOX = '/bin/busybox';
const APPLETS = [
  ...['sh', 'sleep', 'cat', 'echo', 'env', 'pwd', 'true', 'stty', 'tty', 'nc', 'head', 'wc', 'seq', 'sed'],
  ...['xargs', 'touch', 'mkdir', 'mkfifo', 'rm', 'kill', 'yes'],
];

/** The agent as a process of this machine. The repository has it without the permission to execute it. */
function spawnAgent(directory: string): {
  process: ChildProcessByStdio<Writable, Readable, null>;
  stream: Duplex;
} {
  const executable = join(directory, 'agent');
  copyFileSync(program, executable);
  chmodSync(executable, 0o755);
  const process = spawn(executable, { stdio: ['pipe', 'pipe', 'inherit'] });
  return { process, stream: Duplex.from({ readable: process.stdout, writable: process.stdin }) };
}

async function openAgent(): Promise<GuestTarget> {
  const directory = realpathSync(mkdtempSync(join(tmpdir(), 'sandkeep-guest-')));
  const bin = join(directory, 'bin');
  mkdirSync(bin);
  for (const applet of APPLETS) symlinkSync(BUSYBOX, join(bin, applet));
  const { process, stream } = spawnAgent(directory);
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
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
  };
}

function statOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return '';
  }
}

const program = join(PACKAGE_ROOT, 'guest', `agent-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}`);
const missing =
  process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)
    ? 'it needs Linux on x86-64 or ARM64'
    : existsSync(BUSYBOX)
      ? undefined
      : `there is no ${BUSYBOX} (on Debian: apt-get install busybox-static)`;
if (missing !== undefined) console.warn(`the tests of the agent are SKIPPED: ${missing}`);

describe.skipIf(missing !== undefined)('the agent of the sandboxes', () => {
  guestConformance(openAgent);
});
