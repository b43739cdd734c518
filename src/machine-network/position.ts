/** The place of the rules of a sandbox on the way of its packets. */
export interface Position {
  /** Statements for packets between programs of the sandbox, which have no entry in the table of connections. */
  untracked: readonly string[];
  /** The hook of packets from the sandbox, and statements before its rules. */
  leaving: readonly string[];
  /** The same of packets for the sandbox. */
  arriving: readonly string[];
  /** The hook of packets that are neither, which are dropped. */
  passing: string;
  /** The hooks that lead to the gateway by the mark of a connection, and that change the address of a name server. */
  toGateway: Record<'route' | 'translate', readonly [hook: string, other: string]>;
  /** The hooks of counters, which decide nothing, and statements that leave other packets out. */
  counted: Record<'trying' | 'sending' | 'receiving', readonly [hook: string, other: string]>;
}

/** The engine's resolver, which reveals the other containers on the bridge. */
const INNER_RESOLVER = '127.0.0.11';

/**
 * The programs of the sandbox run in the namespace of the rules. The engine's resolver is closed on all ports, because
 * its address translation follows these chains. It comes before loopback, which is its interface.
 */
export const AROUND_PROGRAMS: Position = {
  untracked: ['type filter hook output priority raw; policy accept;', 'oifname "lo" notrack'],
  leaving: [
    'type filter hook output priority mangle; policy drop;',
    `ip daddr ${INNER_RESOLVER} jump refuse`,
    'oifname "lo" accept',
  ],
  arriving: ['type filter hook input priority filter; policy drop;', 'iifname "lo" accept'],
  passing: 'forward',
  toGateway: {
    route: ['type route hook output priority mangle + 1', 'oifname "lo"'],
    translate: ['type nat hook output priority -100', 'oifname "lo"'],
  },
  counted: {
    trying: ['output priority mangle - 5', 'oifname "lo"'],
    sending: ['output priority filter', 'oifname "lo"'],
    receiving: ['input priority filter + 5', 'iifname "lo"'],
  },
};

/**
 * A virtual machine is behind a link of the namespace, which forwards its packets. Its kernel may send anything: only
 * IPv4 from its own address passes. Its packets are decided before they are routed, so those to the namespace itself
 * too.
 */
export function behindLink(link: string, address: string): Position {
  return {
    untracked: [],
    leaving: [
      'type filter hook prerouting priority mangle; policy drop;',
      `iifname != "${link}" accept`,
      `ip saddr != ${address} drop`,
      'meta nfproto != ipv4 drop',
    ],
    arriving: [
      'type filter hook forward priority filter; policy drop;',
      `iifname "${link}" oifname != "${link}" accept`,
      `oifname != "${link}" drop`,
      `ip daddr != ${address} drop`,
      'meta nfproto != ipv4 drop',
    ],
    passing: 'input',
    // The route is chosen after these.
    toGateway: {
      route: ['type filter hook prerouting priority mangle + 1', `iifname != "${link}"`],
      translate: ['type nat hook prerouting priority -100', `iifname != "${link}"`],
    },
    counted: {
      trying: ['prerouting priority mangle - 5', `iifname != "${link}"`],
      sending: ['forward priority filter + 5', `iifname != "${link}"`],
      receiving: ['forward priority filter + 5', `oifname != "${link}"`],
    },
  };
}
