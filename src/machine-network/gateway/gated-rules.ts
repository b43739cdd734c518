import { GATEWAY_ADDRESS, PORTS } from '../../gateway/protocol.js';
import { isDomainRule } from '../../network-policy/domains.js';
import { Evaluator, type Surroundings } from '../../network-policy/evaluate.js';
import { rulesFor } from '../../network-policy/order.js';
import type { NetworkPolicy, Rule } from '../../network-policy/schema.js';
import { DNS_PORT, trafficOf } from '../../network-policy/traffic.js';
import type { GatedNetwork } from '../../spec/run-spec.js';
import type { Position } from '../position.js';
import { domainSet, GATED_MARK, INNER_LINK, MOST_ELEMENTS } from './kernel-names.js';

/** The packets of TLS over UDP. A shared address would open its neighbours. */
const QUIC_PORT = 443;
const HTTP_PORT = 80;
/** Names by other ways than the gateway: DNS over TLS and QUIC, and the protocols of local names. */
const NAME_PORTS = { both: [853], udp: [784, 5_353, 5_355, 8_853] };

const TO_GATEWAY = `ct mark set ${GATED_MARK} accept`;

/** The parts that a sandbox with a gateway has in its rules. Others have none of them. */
export class GatedRules {
  private readonly intercepted: readonly number[];
  private readonly hasResolver: boolean;

  constructor(
    private readonly policy: NetworkPolicy,
    private readonly gated: GatedNetwork,
    surroundings: Surroundings,
  ) {
    const { secrets, tls } = gated;
    this.intercepted = secrets.length > 0 || tls.enabled ? [...new Set([HTTP_PORT, ...tls.ports])] : [];
    const rules = rulesFor(policy, 'egress');
    const evaluator = new Evaluator(policy, surroundings);
    this.hasResolver =
      rules.some((rule) => isDomainRule(rule) && rule.action === 'allow') ||
      [...surroundings.resolvers, ...surroundings.hosts].some(
        (address) =>
          evaluator.decide({ carrier: 'udp', address, port: DNS_PORT, names: [] }).action === 'allow',
      );
  }

  /** The verdict on packets that the policy allows. */
  get accept(): string {
    return this.intercepted.length === 0 ? 'accept' : 'jump admit';
  }

  sets(): string[] {
    return rulesFor(this.policy, 'egress').flatMap((rule, position) =>
      isDomainRule(rule)
        ? [`  set ${domainSet(position)} { type ipv4_addr; flags timeout; size ${MOST_ELEMENTS}; }`]
        : [],
    );
  }

  chains({ toGateway: { route, translate } }: Position): string {
    const quic = this.gated.tls.blockQuic
      ? `    meta l4proto udp th dport { ${this.intercepted.join(', ')} } jump refuse\n`
      : '';
    const admit =
      this.intercepted.length === 0
        ? ''
        : `  chain admit {
    meta l4proto tcp th dport { ${this.intercepted.join(', ')} } ${TO_GATEWAY}
${quic}    accept
  }
`;
    // The route is chosen by the mark, for each packet of the connection. The kernel deletes the route with the link,
    // and then looks in the usual table, which leads to the machine: so the output link is checked after it.
    return `${admit}  chain routing {
    ${route[0]}; policy accept;
    ${route[1]} accept
    ct mark ${GATED_MARK} meta mark set ct mark
  }
  chain held {
    type filter hook postrouting priority mangle; policy accept;
    ct direction original ct mark ${GATED_MARK} oifname != "${INNER_LINK}" drop
    ip daddr ${GATEWAY_ADDRESS} oifname != "${INNER_LINK}" drop
  }
  chain foreign_names {
    ${translate[0]}; policy accept;
    ${translate[1]} accept
    ip daddr != ${GATEWAY_ADDRESS} meta l4proto { tcp, udp } th dport ${DNS_PORT} dnat ip to ${GATEWAY_ADDRESS}:${PORTS.foreignDns}
  }
`;
  }

  /** After the limits of connections, and before the guarded groups: the gateway has a link-local address. */
  beforeGuard(): string[] {
    const dns = `meta l4proto { tcp, udp } th dport ${DNS_PORT}`;
    return [
      // A packet without a known connection gets no mark and no other address, so nothing would lead it to the gateway.
      'ct state invalid drop',
      // The gateway carries IPv4 alone. Programs that are refused at once take the other family.
      'meta nfproto ipv6 jump refuse',
      `ip daddr ${GATEWAY_ADDRESS} ${this.hasResolver ? `${dns} accept` : 'jump refuse'}`,
      ...(this.hasResolver ? [`ip daddr ${GATEWAY_ADDRESS} jump refuse`] : []),
      // Other resolvers: the gateway answers for them, and knows no name.
      `ip version 4 ${dns} ${this.hasResolver ? 'accept' : 'jump refuse'}`,
      `meta l4proto { tcp, udp } th dport { ${NAME_PORTS.both.join(', ')} } jump refuse`,
      `meta l4proto udp th dport { ${NAME_PORTS.udp.join(', ')} } jump refuse`,
    ];
  }

  /** From this rule on the gateway decides TCP. Undefined: the kernel decides it. */
  get firstJudged(): number | undefined {
    if (!this.gated.strict) return undefined;
    const position = rulesFor(this.policy, 'egress').findIndex(
      (rule) => isDomainRule(rule) && matchesTcp(rule),
    );
    return position < 0 ? undefined : position;
  }

  judge(): string {
    return `meta l4proto tcp ${TO_GATEWAY}`;
  }

  /** Peers of a rule by domain, with the statements in front of its kinds. */
  domainPeers(rule: Rule, position: number): string[] {
    const isOpening = this.gated.strict && rule.action === 'allow';
    return [
      // The port is matched where the packet has one.
      ...(isOpening ? [] : [`ip daddr @${domainSet(position)}`]),
      ...(isOpening ? [`ip daddr @${domainSet(position)} meta l4proto != udp`] : []),
      ...(isOpening ? [`ip daddr @${domainSet(position)} udp dport != ${QUIC_PORT}`] : []),
    ];
  }

  /** Packets on the link come from the gateway, which begins no connection. */
  arriving(): string {
    return `iifname "${INNER_LINK}" drop`;
  }
}

function matchesTcp(rule: Rule): boolean {
  const traffic = trafficOf(rule);
  return traffic === 'everything' || traffic.carriers.includes('tcp');
}
