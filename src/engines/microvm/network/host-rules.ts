import { createHash } from 'node:crypto';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { ipIn } from '../../../machine-network/gateway/links.js';
import { applyRules } from '../../../machine-network/nftables.js';
import { runWithInput } from '../../../machine-network/run-program.js';
import { publishedChains, type PublishedPorts } from './port-rules.js';

/**
 * The rules of the machine for the links of an installation, whose names begin with `links`. The rules of a sandbox are
 * in its namespace: these keep sandboxes apart also where those fail, and translate their addresses.
 */
export interface HostRules {
  links: string;
  table: string;
}

export function hostRulesOf(instanceId: string): HostRules {
  const hash = createHash('sha256').update(instanceId).digest('hex').slice(0, 6);
  return { links: `sv${hash}-`, table: `sandkeep_${hash}` };
}

/** Bridges of Docker. It closes the ports of containers to other networks by rules that know its own bridges alone. */
const DOCKER_BRIDGE = /^(?:docker\w*|br-[0-9a-f]{12})$/;

function dockerBridges(): string[] {
  return readdirSync('/sys/class/net')
    .filter((name) => DOCKER_BRIDGE.test(name))
    .toSorted();
}

/** An nftables script that atomically replaces the rules. `subnet`: of all sandboxes of the installation. */
export function hostScript(
  { links, table }: HostRules,
  subnet: string,
  published: readonly PublishedPorts[],
  bridges = dockerBridges(),
): string {
  const ours = `"${links}*"`;
  const docker = bridges.map((name) => `    iifname ${ours} oifname "${name}" drop\n`).join('');
  return `table inet ${table}
delete table inet ${table}
table inet ${table} {
  chain passing {
    type filter hook forward priority filter - 5; policy accept;
    iifname ${ours} oifname ${ours} drop
    iifname ${ours} ip saddr != ${subnet} drop
    iifname ${ours} meta nfproto != ipv4 drop
${docker}    oifname ${ours} ct state established,related accept
    oifname ${ours} ct status dnat accept
    oifname ${ours} drop
  }
${publishedChains(ours, published)}  chain leaving {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr 127.0.0.0/8 oifname ${ours} masquerade
    ip saddr ${subnet} oifname != ${ours} masquerade
  }
}
`;
}

/**
 * A packet passes when no table drops it. Docker and firewalls drop all packets that they do not know, by the rules of
 * iptables, so these get an exception at the top.
 */
function exceptions({ links }: HostRules): string[][] {
  return [
    ['-i', `${links}+`, '-j', 'ACCEPT'],
    ['-o', `${links}+`, '-m', 'conntrack', '--ctstate', 'RELATED,ESTABLISHED', '-j', 'ACCEPT'],
    // Connections to published ports. The rules of the installation drop others.
    ['-o', `${links}+`, '-m', 'conntrack', '--ctstate', 'DNAT', '-j', 'ACCEPT'],
  ].map((rule) => ['FORWARD', ...rule]);
}

export async function applyHostRules(
  host: number,
  rules: HostRules,
  subnet: string,
  published: readonly PublishedPorts[] = [],
): Promise<void> {
  // Nobody else chooses addresses that a route leads to, and packets to ended sandboxes go nowhere.
  await ipIn(host, `route replace blackhole ${subnet}`);
  await applyRules(host, hostScript(rules, subnet, published));
  if (!(await hasIptables(host))) return;
  for (const rule of exceptions(rules)) {
    const isThere = await iptables(host, '-C', rule).then(
      () => true,
      () => false,
    );
    if (!isThere) await iptables(host, '-I', rule);
  }
}

/** Tolerates that some or all are gone. `subnet`: undefined, none was ever chosen. */
export async function removeHostRules(
  host: number,
  rules: HostRules,
  subnet: string | undefined,
): Promise<void> {
  if (subnet !== undefined)
    await ipIn(host, `route del blackhole ${subnet}`, [], ['-force']).catch(() => undefined);
  await applyRules(host, `table inet ${rules.table}\ndelete table inet ${rules.table}\n`);
  for (const rule of exceptions(rules)) {
    // Another process may have added it at the same moment.
    for (let tried = 0; tried < 2; tried += 1) await iptables(host, '-D', rule).catch(() => undefined);
  }
}

/** Listing the rules by iptables itself would make them. */
async function hasIptables(host: number): Promise<boolean> {
  const inside = ['--net=/proc/self/fd/3', 'nft', 'list', 'chain', 'ip', 'filter', 'FORWARD'];
  const isOfNftables = await runWithInput('nsenter', inside, '', [host]).then(
    () => true,
    () => false,
  );
  return isOfNftables || hasLegacyFilter();
}

function hasLegacyFilter(): boolean {
  try {
    return readFileSync('/proc/self/net/ip_tables_names', 'utf8').split('\n').includes('filter');
  } catch {
    return false;
  }
}

async function iptables(host: number, action: '-C' | '-I' | '-D', rule: readonly string[]): Promise<void> {
  const [chain, ...rest] = rule;
  // It waits for a lock that other programs hold for a moment.
  const args = ['--net=/proc/self/fd/3', 'iptables', '--wait', '5', action, chain!, ...rest];
  await runWithInput('nsenter', args, '', [host]);
}

/** Calls `act` with the network namespace of this process, which is that of the machine. */
export async function inHost<Result>(act: (host: number) => Promise<Result>): Promise<Result> {
  const host = openSync('/proc/self/ns/net', 'r');
  try {
    return await act(host);
  } finally {
    closeSync(host);
  }
}
