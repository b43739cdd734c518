import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { FromGateway, ToGateway } from '../../../../gateway/protocol.js';
import { MessageWriter, readMessages } from '../../../../gateway/json-lines.js';
import { LONGEST_FROM_GATEWAY } from '../../../../gateway/service-link.js';
import { PACKAGE_ROOT } from '../../../../lib/package-root.js';

/** The build for the processor of this machine, where the engine is too. */
export const LAUNCH = join(
  PACKAGE_ROOT,
  'guest',
  `launch-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}`,
);
export const SOURCE_FILE = join(PACKAGE_ROOT, 'dist', 'program', 'gateway.cjs');
/** The settings of many sandboxes with secrets wait for the start of the program. */
const MOST_UNREAD_BYTES = 256 * 1024 * 1024;
/** No account of a machine and no range of its containers has these (systemd.io/UIDS-GIDS). */
const USERS = { first: 1_900_000_000, count: 90_000_000 };
/** Descriptors 3 to 7 are the listeners that `launch` opens. */
const LISTENER_PLACES = ['ignore', 'ignore', 'ignore', 'ignore', 'ignore'] as const;
const SOURCE = 8;
const NAMESPACE = 9;
const NODE = 10;

/**
 * The running gateway. It is a child that can do nothing to the machine. Its user may not see the folder of the
 * program, so it gets open files.
 */
export class GatewayProgram {
  readonly ended: Promise<string>;
  private readonly child: ChildProcess;
  private readonly writer: MessageWriter<ToGateway>;

  /** `namespace`: an open descriptor. `receive` gets the messages, which strangers may have formed. */
  constructor(
    { instanceId, namespace }: { instanceId: string; namespace: number },
    receive: (message: FromGateway) => void,
  ) {
    const source = openSync(SOURCE_FILE, 'r');
    const node = openSync(process.execPath, 'r');
    try {
      this.child = spawn(
        LAUNCH,
        [
          `${NAMESPACE}`,
          `${userOf(instanceId)}`,
          `${NODE}`,
          'sandkeep-gateway',
          // Node would look for the place of the file, which is closed to the user.
          '--preserve-symlinks-main',
          `/proc/self/fd/${SOURCE}`,
        ],
        {
          cwd: '/',
          env: {},
          stdio: ['pipe', 'pipe', 'pipe', ...LISTENER_PLACES, source, namespace, node],
        },
      );
    } finally {
      closeSync(source);
      closeSync(node);
    }
    const { stdin, stdout, stderr } = this.child;
    let lastWords = '';
    createInterface(stderr!).on('line', (line) => (lastWords = line.slice(0, 500)));
    this.ended = new Promise((resolve) => {
      this.child.once('error', (error) => resolve(error.message));
      this.child.once('close', (code, signal) =>
        resolve(`it ended with ${code ?? signal}${lastWords === '' ? '' : `: ${lastWords}`}`),
      );
    });
    // The end of the child says it.
    stdin!.on('error', () => undefined);
    this.writer = new MessageWriter(stdin!, MOST_UNREAD_BYTES);
    // A program that sends anything else is no longer ours, and must not end the service.
    const take = (message: FromGateway) => {
      try {
        receive(message);
      } catch {
        this.kill();
      }
    };
    readMessages<FromGateway>(stdout!, LONGEST_FROM_GATEWAY, { receive: take, fail: () => this.kill() });
  }

  send(message: ToGateway): void {
    if (!this.writer.write(message)) this.kill();
  }

  kill(): void {
    this.child.kill('SIGKILL');
  }
}

/** Each installation has its own, because processes of one user can read each other. */
function userOf(instanceId: string): number {
  const hash = createHash('sha256').update(instanceId).digest().readUInt32BE(0);
  return USERS.first + (hash % USERS.count);
}
