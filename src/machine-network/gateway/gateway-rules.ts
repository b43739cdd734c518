import { GATEWAY_ADDRESS, PORTS } from '../../gateway/protocol.js';
import { addressSets, guardedChain, type NetworkEnvironment } from '../compile-policy.js';

/** The links to sandboxes, by a prefix of their names. */
const LINKS = 's*';
/** The engine's resolver, which reveals the containers on the bridge, listens on one of them. */
const ENGINE_RESOLVERS = '127.0.0.0/8';
const DELIVERED_MARK = 1;
const REFUSED_MARK = 2;
const DELIVERY_TABLE = 100;

/** Removes the rules that an earlier service left. They may be missing. */
export const NO_DELIVERY = [DELIVERED_MARK, REFUSED_MARK]
  .map((mark) => `rule del fwmark ${mark} lookup ${DELIVERY_TABLE}`)
  .join('\n');
/** Packets to foreign addresses are delivered to the listener of connections. For `ip -batch`. */
export const DELIVERY = [
  'link set lo up',
  `addr replace ${GATEWAY_ADDRESS}/32 dev lo`,
  `rule add fwmark ${DELIVERED_MARK} lookup ${DELIVERY_TABLE}`,
  `rule add fwmark ${REFUSED_MARK} lookup ${DELIVERY_TABLE}`,
  `route replace local default dev lo table ${DELIVERY_TABLE}`,
].join('\n');

/**
 * The rules of the gateway's namespace, as an nftables script.
 *
 * - A link may send from the address of its own sandbox only, so the gateway knows a sandbox by its address.
 * - From a link come name queries and TCP connections, which the gateway takes over. Nothing is forwarded. While no
 *   gateway listens, the kernel refuses them, so that clients need not wait.
 * - The gateway reaches neither sandboxes nor, unless the operator opened them, the machine and metadata services. Its
 *   own checks come before: these rules hold when the program is taken over.
 * - Nobody on the bridge begins a connection to the gateway.
 */
export function gatewayRules(environment: Omit<NetworkEnvironment, 'bandwidthMbits'>): string {
  return `table inet sandkeep
delete table inet sandkeep
table inet sandkeep {
  set sandboxes { type ifname . ipv4_addr; }
${addressSets({ ...environment, bandwidthMbits: 0 })}
  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
${guardedChain({ ...environment, bandwidthMbits: 0 })}
  chain taken {
    type filter hook prerouting priority mangle; policy accept;
    iifname != "${LINKS}" accept
    iifname . ip saddr != @sandboxes drop
    ip daddr ${GATEWAY_ADDRESS} meta l4proto { tcp, udp } th dport { ${PORTS.dns}, ${PORTS.foreignDns} } accept
    ip daddr ${GATEWAY_ADDRESS} drop
    meta l4proto tcp tproxy ip to :${PORTS.connections} meta mark set ${DELIVERED_MARK} accept
    # Without a listener the line above does not match. Kernels before 5.9 cannot reset a connection here.
    meta l4proto tcp meta mark set ${REFUSED_MARK} accept
    drop
  }
  chain arriving {
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    iifname "${LINKS}" meta mark ${REFUSED_MARK} meta l4proto tcp reject with tcp reset
    iifname "${LINKS}" accept
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
  }
  chain leaving {
    type filter hook output priority filter; policy accept;
    ip daddr ${ENGINE_RESOLVERS} drop
    oifname "lo" accept
    oifname "${LINKS}" ct direction reply accept
    oifname "${LINKS}" drop
    ct state established,related accept
    ip daddr @neighbour4 ip daddr != @host4 jump refuse
    ip6 daddr @neighbour6 ip6 daddr != @host6 jump refuse
    jump guarded
  }
  chain passing {
    type filter hook forward priority filter; policy drop;
  }
}
`;
}

export function knownSandbox(action: 'add' | 'delete', link: string, address: string): string {
  return `${action} element inet sandkeep sandboxes { "${link}" . ${address} }\n`;
}
