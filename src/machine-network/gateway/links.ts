import { createHash } from 'node:crypto';
import { GATEWAY_ADDRESS } from '../../gateway/protocol.js';
import type { NetworkNamespace } from '../namespace.js';
import { applyRules } from '../nftables.js';
import { runWithInput } from '../run-program.js';
import { knownSandbox } from './gateway-rules.js';
import { GATED_MARK, INNER_LINK } from './kernel-names.js';

const GATED_TABLE = 100;

/** The end in the namespace of the gateway. The kernel takes 15 letters. */
export function outerLink(sandboxId: string): string {
  return `s${createHash('sha256').update(sandboxId).digest('hex').slice(0, 14)}`;
}

interface Link {
  sandboxId: string;
  /** The IPv4 address of the sandbox on the bridge. */
  address: string;
  mtu: number | undefined;
  /** The address is behind the namespace. Default: it is an address of the namespace. */
  forwards?: boolean;
}

/**
 * Joins the namespaces of a sandbox and of the gateway, both open descriptors. It replaces an earlier link. The link
 * has no address of its own: packets come from the address of the sandbox on the bridge.
 */
export async function makeLink(
  sandbox: number,
  gateway: number,
  { sandboxId, address, mtu, forwards = false }: Link,
): Promise<void> {
  const outer = outerLink(sandboxId);
  const size = mtu === undefined ? '' : ` mtu ${mtu}`;
  // Fails where there is no earlier link.
  await ipIn(sandbox, `link del ${INNER_LINK}\nrule del fwmark ${GATED_MARK}\n`, [], ['-force']).catch(
    () => undefined,
  );
  const commands = [
    `link add ${INNER_LINK}${size} type veth peer name ${outer}${size} netns /proc/self/fd/4`,
    `link set ${INNER_LINK} up`,
    `route add ${GATEWAY_ADDRESS} dev ${INNER_LINK} scope link${forwards ? '' : ` src ${address}`}`,
    `route add default via ${GATEWAY_ADDRESS} dev ${INNER_LINK} onlink table ${GATED_TABLE}`,
    `rule add fwmark ${GATED_MARK} lookup ${GATED_TABLE}`,
  ].join('\n');
  await ipIn(sandbox, commands, [gateway]).catch(async () => {
    // The kernel takes the namespace of the previous run apart later, and its link has the same name in the gateway.
    await ipIn(gateway, `link del ${outer}`, [], ['-force']).catch(() => undefined);
    await ipIn(sandbox, commands, [gateway]);
  });
  // Packets of the whole world arrive on it, and the way back to them is another. Where the machine checks that, even
  // loosely, the kernel drops them. The stricter of the two settings counts, and the bridge keeps its own.
  await writeSettings(sandbox, [`net/ipv4/conf/${INNER_LINK}/rp_filter`, 'net/ipv4/conf/all/rp_filter'], '0');
  if (forwards) {
    // The namespace answers for the address, at once.
    await writeSettings(sandbox, [`net/ipv4/conf/${INNER_LINK}/proxy_arp`], '1');
    await writeSettings(sandbox, [`net/ipv4/neigh/${INNER_LINK}/proxy_delay`], '0');
  }
  // Not `add`: the link of an ended sandbox with this address may still be there, with its route.
  await ipIn(gateway, `link set ${outer} up\nroute replace ${address}/32 dev ${outer}`);
  await applyRules(gateway, knownSandbox('add', outer, address));
}

/** Runs commands of `ip` in a namespace, an open descriptor. */
export async function ipIn(
  namespace: number,
  commands: string,
  others: readonly number[] = [],
  options: readonly string[] = [],
): Promise<void> {
  const args = ['--net=/proc/self/fd/3', 'ip', ...options, '-batch', '-'];
  await runWithInput('nsenter', args, `${commands}\n`, [namespace, ...others]);
}

/** The kernel shows a process the settings of its own namespace. */
async function writeSettings(namespace: number, names: readonly string[], value: string): Promise<void> {
  const args = ['--net=/proc/self/fd/3', 'tee', ...names.map((name) => `/proc/sys/${name}`)];
  await runWithInput('nsenter', args, value, [namespace]);
}

/** The largest packet of a sandbox on the bridge. The engine has one for a whole network. */
export async function setMtu(namespace: NetworkNamespace, mtu: number): Promise<void> {
  await namespace.enter(async (descriptor) => ipIn(descriptor, `link set eth0 mtu ${mtu}`));
}
