import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { NetnsPeer, sh } from './netns.js';

const NAMESPACE = 'sk-routed-world';
const LINK = 'sk-routed';
/** The address of the machine on the link to the world. */
export const MACHINE = '10.212.250.1';
export const BEHIND = '10.212.250.2';

/**
 * A network namespace with public addresses, to which the machine has a route. It has no route to sandboxes: only
 * packets with the address of the machine get an answer.
 */
export class RoutedWorld {
  readonly namespace = NAMESPACE;

  private constructor(
    readonly peer: NetnsPeer,
    private readonly lock: ChildProcess,
  ) {}

  /** It answers on the ports with "reached". Its addresses are fixed, so it waits for another one on the machine. */
  static async start(ports: readonly number[]): Promise<RoutedWorld> {
    const lock = await takeAddresses();
    remove();
    sh(`
      ip netns add ${NAMESPACE}
      ip link add ${LINK} type veth peer name eth0 netns ${NAMESPACE}
      ip addr add ${MACHINE}/30 dev ${LINK}; ip link set ${LINK} up
      ip route add 45.14.250.0/24 via ${BEHIND}
    `);
    sh(
      `ip link set lo up; ip link set eth0 up; ip addr add ${BEHIND}/30 dev eth0
       ip route add local 45.14.250.0/24 dev lo`,
      NAMESPACE,
    );
    return new RoutedWorld(await NetnsPeer.start(NAMESPACE, ports), lock);
  }

  async close(): Promise<void> {
    await this.peer.stop();
    remove();
    this.lock.stdin!.end();
  }
}

/** A killed test run leaves them. */
function remove(): void {
  sh(`ip link del ${LINK} 2>/dev/null || true; ip netns del ${NAMESPACE} 2>/dev/null || true`);
}

/** The lock ends with this process. */
async function takeAddresses(): Promise<ChildProcess> {
  const command = ['--timeout', String(LOCK_SECS), LOCK, 'sh', '-c', 'echo locked; exec cat'];
  const child = spawn('flock', command, { stdio: ['pipe', 'pipe', 'inherit'] });
  const isLocked = await Promise.race([
    once(child.stdout, 'data').then(() => true),
    once(child, 'exit').then(() => false),
  ]);
  if (!isLocked) throw new Error(`another test has the addresses of the world for ${LOCK_SECS} s`);
  return child;
}

/** Three files wait for one another. Each takes minutes on a busy machine. */
const LOCK_SECS = 1_700;
/** The limit of the set-up of these files. */
export const WORLD_SETUP_MS = 1_800_000;
const LOCK = '/run/lock/sandkeep-routed-world';

/** Addresses of the world. */
export const PUBLIC = '45.14.250.10';
export const NEXT_PUBLIC = '45.14.250.11';
