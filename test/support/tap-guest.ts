import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { TAP_PROGRAM } from '../../src/engines/microvm/network/network-probe.js';
import { TAP } from '../../src/engines/microvm/network/sandbox-namespace.js';
import type { GatewayServices } from '../../src/engine/definition.js';
import { sh } from './netns.js';

/** Copies frames between two taps, and sends those of its input, a line of hexadecimal digits each, to the first. */
const RELAY = `
import os, select, sys
tap, guest = int(sys.argv[1]), int(sys.argv[2])
HEADER = bytes(10)
held = b''
def write(fd, frame):
    try:
        os.write(fd, frame)
    except OSError:
        pass
print('ready', flush=True)
while True:
    for fd in select.select([0, tap, guest], [], [])[0]:
        data = os.read(fd, 1 << 17)
        if fd == 0:
            if not data:
                sys.exit()
            *lines, held = (held + data).split(b'\\n')
            for line in lines:
                write(tap, HEADER + bytes.fromhex(line.decode()))
            print(len(lines), flush=True)
        else:
            write(guest if fd == tap else tap, data)
`;

export interface GuestAddresses {
  address: string;
  gateway: string;
  mac: string;
  mtu: number;
  resolvers?: string[];
}

/** A network namespace in the place of a virtual machine. Its interface is joined to the tap of a sandbox. */
export class TapGuest {
  private constructor(
    /** The name of its namespace, for `sh`. */
    readonly name: string,
    private readonly relay: ChildProcess,
  ) {}

  /** `namespace`: an open descriptor of that of the sandbox. */
  static async start(namespace: number, guest: GuestAddresses): Promise<TapGuest> {
    const { address, gateway, mac, mtu, resolvers = [] } = guest;
    const name = `sk-vm-${randomUUID()}`;
    // Programs in the namespace have the file as /etc/resolv.conf.
    sh(`
      ip netns add ${name}; mkdir -p /etc/netns/${name}
      echo '${resolvers.map((resolver) => `nameserver ${resolver}`).join('\n')}' >/etc/netns/${name}/resolv.conf
    `);
    sh(
      `
      echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
      ip link set lo up
      ip tuntap add eth0 mode tap
      ip link set eth0 address ${mac} mtu ${mtu} up
      ip addr add ${address}/32 dev eth0
      ip route add default via ${gateway} dev eth0 onlink
    `,
      name,
    );
    const own = openSync(`/run/netns/${name}`, 'r');
    const join = [TAP_PROGRAM, '6', '7', 'eth0', 'python3', '-c', RELAY, '5', '7'];
    const relay = spawn(TAP_PROGRAM, ['4', '5', TAP, ...join], {
      stdio: ['pipe', 'pipe', 'inherit', 'ignore', namespace, 'ignore', own, 'ignore'],
    });
    closeSync(own);
    const ended = once(relay, 'exit').then(() =>
      Promise.reject(new Error('the relay between the taps has ended')),
    );
    await Promise.race([once(relay.stdout!, 'data'), ended]);
    return new TapGuest(name, relay);
  }

  /** Sends frames to the tap that no kernel of the machine has seen. */
  async send(frames: readonly Buffer[]): Promise<void> {
    const sent = once(this.relay.stdout!, 'data');
    this.relay.stdin!.write(frames.map((frame) => `${frame.toString('hex')}\n`).join(''));
    await sent;
  }

  async stop(): Promise<void> {
    this.relay.stdin!.end();
    if (this.relay.exitCode === null) await once(this.relay, 'exit');
    sh(`ip netns del ${this.name}; rm -r /etc/netns/${this.name}`);
  }
}

/** The parts of a service that stores nothing. */
export const NO_SERVICES: GatewayServices = {
  authority: () => Promise.reject(new Error('there is no authority')),
  secrets: async () => ({ registry: null, values: {} }),
  specOf: async () => undefined,
  denied: () => undefined,
  flows: () => undefined,
};
