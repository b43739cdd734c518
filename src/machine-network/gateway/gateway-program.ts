import type { ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { FromGateway, ToGateway } from '../../gateway/protocol.js';
import { MessageWriter, readMessages } from '../../gateway/json-lines.js';
import { LONGEST_FROM_GATEWAY } from '../../gateway/service-link.js';
import { PACKAGE_ROOT } from '../../lib/package-root.js';
import { launch, placeOf } from './launch.js';

export const SOURCE_FILE = join(PACKAGE_ROOT, 'dist', 'program', 'gateway.cjs');
/** Its last reports take milliseconds, unless the machine is overloaded. */
const END_MS = 1_000;
/** The settings of many sandboxes with secrets wait for the start of the program. */
const MOST_UNREAD_BYTES = 256 * 1024 * 1024;

/**
 * The running gateway. It is a child that can do nothing to the machine. Its user may not see the folder of the
 * program, so it gets open files.
 */
export class GatewayProgram {
  readonly ended: Promise<string>;
  private readonly child: ChildProcess;
  private readonly writer: MessageWriter<ToGateway>;

  /**
   * `namespace`: an open descriptor, in which KeptListeners are open. `receive` gets the messages, which strangers may
   * have formed.
   */
  constructor(
    { instanceId, namespace }: { instanceId: string; namespace: number },
    receive: (message: FromGateway) => void,
  ) {
    const source = openSync(SOURCE_FILE, 'r');
    const node = openSync(process.execPath, 'r');
    try {
      const { child, ended } = launch({
        instanceId,
        namespace,
        descriptors: [source, node],
        args: [
          `${placeOf(1)}`,
          'sandkeep-gateway',
          // Node would look for the place of the file, which is closed to the user.
          '--preserve-symlinks-main',
          `/proc/self/fd/${placeOf(0)}`,
        ],
      });
      this.child = child;
      this.ended = ended;
    } finally {
      closeSync(source);
      closeSync(node);
    }
    const { stdin, stdout } = this.child;
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

  /** Lets it send its last reports. */
  end(): void {
    this.child.stdin!.end();
    const timer = setTimeout(() => this.kill(), END_MS);
    void this.ended.then(() => clearTimeout(timer));
  }

  kill(): void {
    this.child.kill('SIGKILL');
  }
}
