import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { ipIn } from '../../../machine-network/gateway/links.js';

/** For a loaded machine: no program waits. */
const TIMEOUT_MS = 10_000;
/** The tap in the namespace of a sandbox. */
export const TAP = 'vm0';

export interface SandboxLink {
  /** The end of the link on the machine, at most 15 letters. */
  name: string;
  mtu: number;
  /** The address of the virtual machine. */
  address: string;
  /** The address of the namespace. */
  gateway: string;
  /** The address of the machine. */
  machine: string;
}

/**
 * Makes the network namespace of a virtual machine, with a link to the machine and a tap. Packets are routed between
 * them. `host`: an open namespace, in which the link ends. `rules`: an nftables script for the new one. Returns an open
 * descriptor. The kernel removes all of it with the last descriptor.
 */
export async function makeNamespace(host: number, link: SandboxLink, rules: string): Promise<number> {
  const { mtu, address, gateway } = link;
  return make(host, link, {
    before: `
echo 1 >/proc/sys/net/ipv4/ip_forward
# Every refused packet gets its answer. The bandwidth of the sandbox bounds them.
echo 0 >/proc/sys/net/ipv4/icmp_ratemask
nft -f - <<'RULES'
${rules}
RULES`,
    links: [
      `tuntap add ${TAP} mode tap`,
      `link set ${TAP} mtu ${mtu} up`,
      `addr add ${gateway}/32 dev ${TAP}`,
      `route add ${address}/32 dev ${TAP}`,
    ],
    after: `echo 1 >/proc/sys/net/ipv4/conf/${TAP}/rp_filter`,
  });
}

/** Makes the namespace of the gateway, which has an address of the sandboxes as its own. */
export async function makeGatewayNamespace(host: number, link: SandboxLink): Promise<number> {
  return make(host, link, {
    // The service may lack the right to listen on port 53.
    before: 'echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start',
    links: [`addr add ${link.address}/32 dev eth0`],
    after: '',
  });
}

/** The addresses of the hardware are fixed on both ends of the link, so that nobody can claim another one. */
async function make(
  host: number,
  { name, mtu, address, machine }: SandboxLink,
  inside: { before: string; links: readonly string[]; after: string },
): Promise<number> {
  const { inner, outer } = hardwareAddresses(address);
  // IPv6 is off before there is a link, so no link gets an address of its own.
  const script = `
for each in all default; do
  [ ! -e /proc/sys/net/ipv6/conf/$each/disable_ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/$each/disable_ipv6
  echo 0 >/proc/sys/net/ipv4/conf/$each/send_redirects
done
${inside.before}
ip -batch - <<'LINKS'
link set lo up
link add eth0 mtu ${mtu} address ${inner} type veth peer name ${name} mtu ${mtu} address ${outer} netns /proc/self/fd/3
link set eth0 up
${inside.links.join('\n')}
route add ${machine}/32 dev eth0
neigh replace ${machine} lladdr ${outer} dev eth0 nud permanent
route add default via ${machine} dev eth0
LINKS
${inside.after}
echo made
exec cat >/dev/null
`;
  const namespace = await openNew(script, host);
  try {
    await ipIn(
      host,
      [
        `link set ${name} addrgenmode none`,
        `link set ${name} up`,
        `addr add ${machine}/32 dev ${name}`,
        `route add ${address}/32 dev ${name}`,
        `neigh replace ${address} lladdr ${inner} dev ${name} nud permanent`,
      ].join('\n'),
    );
    return namespace;
  } catch (error) {
    closeSync(namespace);
    throw error;
  }
}

/** Both are local: the second-lowest bit of the first octet is set. */
function hardwareAddresses(address: string): { inner: string; outer: string } {
  const octets = address.split('.').map((octet) => Number(octet).toString(16).padStart(2, '0'));
  return { inner: ['06', '5a', ...octets].join(':'), outer: ['0a', '5a', ...octets].join(':') };
}

/** The address of a virtual machine that asks for none. */
export function guestHardwareAddress(address: string): string {
  return hardwareAddresses(address).inner.replace(/^06/, '02');
}

/** Runs a script in a new namespace, and returns a descriptor of it. The script has `host` as descriptor 3. */
async function openNew(script: string, host: number): Promise<number> {
  const child = spawn('unshare', ['--net', 'sh', '-eu'], {
    stdio: ['pipe', 'pipe', 'pipe', host],
    timeout: TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  const complaint = text(child.stderr!);
  const closed = new Promise<never>((_resolve, reject) => {
    child.once('error', reject);
    child.once('close', () => {
      void complaint.then((said) => reject(new Error(said.trim().split('\n')[0] || 'it ended')));
    });
  });
  closed.catch(() => undefined);
  child.stdin!.on('error', () => undefined);
  // The rules of a long policy are longer than an argument may be.
  child.stdin!.write(script);
  await Promise.race([once(child.stdout!, 'data'), closed]);
  try {
    return openSync(`/proc/${child.pid}/ns/net`, 'r');
  } finally {
    child.stdin!.end();
  }
}
