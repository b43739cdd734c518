import { randomUUID } from 'node:crypto';
import { NetnsPeer, sh } from './netns.js';

/** The address of the machine on the link to the world. */
export const MACHINE = '10.212.250.1';
export const BEHIND = '10.212.250.2';

/**
 * A network namespace with public addresses, to which the machine has a route. It has no route to sandboxes: only
 * packets with the address of the machine get an answer.
 */
export class RoutedWorld {
  private constructor(
    readonly namespace: string,
    readonly peer: NetnsPeer,
    private readonly link: string,
  ) {}

  /** One at a time on a machine: the addresses are fixed. It answers on the ports with "reached". */
  static async start(ports: readonly number[]): Promise<RoutedWorld> {
    const namespace = `sk-world-${randomUUID()}`;
    const link = `skw${randomUUID().slice(0, 8)}`;
    sh(`
      ip netns add ${namespace}
      ip link add ${link} type veth peer name eth0 netns ${namespace}
      ip addr add ${MACHINE}/30 dev ${link}; ip link set ${link} up
      ip route add 45.14.250.0/24 via ${BEHIND}
    `);
    sh(
      `ip link set lo up; ip link set eth0 up; ip addr add ${BEHIND}/30 dev eth0
       ip route add local 45.14.250.0/24 dev lo`,
      namespace,
    );
    return new RoutedWorld(namespace, await NetnsPeer.start(namespace, ports), link);
  }

  async close(): Promise<void> {
    await this.peer.stop();
    sh(`ip link del ${this.link}; ip netns del ${this.namespace}`);
  }
}

/** Addresses of the world. */
export const PUBLIC = '45.14.250.10';
export const NEXT_PUBLIC = '45.14.250.11';
