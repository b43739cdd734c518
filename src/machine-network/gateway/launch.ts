import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PACKAGE_ROOT } from '../../lib/package-root.js';

/** The build for the processor of this machine, where the engine is too. */
export const LAUNCH = join(
  PACKAGE_ROOT,
  'guest',
  `launch-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}`,
);
/** No account of a machine and no range of its containers has these (systemd.io/UIDS-GIDS). */
const USERS = { first: 1_900_000_000, count: 90_000_000 };
/** `launch` puts the listeners here: descriptors 3 to 7. */
const LISTENER_PLACES = ['ignore', 'ignore', 'ignore', 'ignore', 'ignore'] as const;
const NAMESPACE = 8;
const FIRST_MORE = 9;

interface Launched {
  child: ChildProcess;
  /** Resolves with the reason of the end. */
  ended: Promise<string>;
}

interface LaunchOptions {
  instanceId: string;
  /** An open descriptor of a network namespace. */
  namespace: number;
  /** Open descriptors, which the program gets as those from 9 on. */
  descriptors?: readonly number[];
  /** The program and its arguments. Default: none, and the listeners are opened and kept. */
  args?: readonly string[];
}

/** Starts a process without rights in a network namespace. */
export function launch({ instanceId, namespace, descriptors = [], args = [] }: LaunchOptions): Launched {
  const child = spawn(LAUNCH, [`${NAMESPACE}`, `${userOf(instanceId)}`, ...args], {
    cwd: '/',
    env: {},
    stdio: ['pipe', 'pipe', 'pipe', ...LISTENER_PLACES, namespace, ...descriptors],
  });
  let lastWords = '';
  createInterface(child.stderr!).on('line', (line) => (lastWords = line.slice(0, 500)));
  // The end of the child says it.
  child.stdin!.on('error', () => undefined);
  const ended = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code, signal) =>
      resolve(`it ended with ${code ?? signal}${lastWords === '' ? '' : `: ${lastWords}`}`),
    );
  });
  return { child, ended };
}

/** The number of a descriptor in the program. */
export function placeOf(position: number): number {
  return FIRST_MORE + position;
}

/** Each installation has its own, because processes of one user can read each other. */
function userOf(instanceId: string): number {
  const hash = createHash('sha256').update(instanceId).digest().readUInt32BE(0);
  return USERS.first + (hash % USERS.count);
}
