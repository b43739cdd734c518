import type {
  KubernetesObject,
  V1LabelSelector,
  V1NetworkPolicy,
  V1NetworkPolicyPeer,
  V1NetworkPolicyPort,
  V1Pod,
} from '@kubernetes/client-node';
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '../../src/engines/kubernetes/client.js';

/**
 * Enforces NetworkPolicies on this machine, as a network plugin does: by rules in the network of each Pod. It acts in
 * the namespace of a test and in those of organizations, whose names begin with it. For clusters without a plugin that
 * enforces them. It needs root and nftables, and finds a Pod by the host name of its process 1.
 */
export class PolicyAgent {
  private readonly applied = new Map<string, string>();
  private readonly stopping = new AbortController();
  private readonly ended: Promise<void>;

  constructor(private readonly cluster: Cluster) {
    this.ended = this.run();
  }

  async close(): Promise<void> {
    this.stopping.abort();
    await this.ended;
  }

  private async run(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      await this.apply().catch((error: unknown) => {
        if (!this.stopping.signal.aborted) console.warn('the policy agent failed', error);
      });
      await sleep(200, undefined, { signal: this.stopping.signal }).catch(() => undefined);
    }
  }

  private async apply(): Promise<void> {
    const { core, networking, namespace } = this.cluster;
    const isHere = ({ metadata }: KubernetesObject) => metadata!.namespace!.startsWith(namespace);
    const pods = (await core.listPodForAllNamespaces()).items.filter(isHere);
    const policies = (await networking.listNetworkPolicyForAllNamespaces()).items.filter(isHere);
    const processes = firstProcesses();
    for (const pod of pods) {
      const pid = processes.get(pod.spec?.hostname ?? pod.metadata!.name!);
      if (pid === undefined || pod.status?.podIP === undefined) continue;
      const own = policies.filter(
        ({ metadata, spec }) =>
          metadata?.namespace === pod.metadata?.namespace && selects(spec?.podSelector, pod),
      );
      const script = rulesOf(own, pods, pod.metadata!.namespace!);
      if (this.applied.get(pid) === script) continue;
      await load(pid, script);
      this.applied.set(pid, script);
    }
  }
}

/** By the name of their host. */
function firstProcesses(): Map<string, string> {
  const found = new Map<string, string>();
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('/.sandkeep/bin/init')) continue;
      const [, host] = /(?:^|\0)HOSTNAME=([^\0]*)/.exec(readFileSync(`/proc/${pid}/environ`, 'utf8')) ?? [];
      if (host !== undefined) found.set(host, pid);
    } catch {
      // It has ended.
    }
  }
  return found;
}

function selects(
  { matchLabels = {}, matchExpressions = [] }: V1LabelSelector = {},
  { metadata }: V1Pod,
): boolean {
  const { labels = {} } = metadata ?? {};
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every(({ key, operator }) => (operator === 'Exists') === (labels[key] !== undefined))
  );
}

function rulesOf(policies: readonly V1NetworkPolicy[], pods: readonly V1Pod[], namespace: string): string {
  const chain = (type: 'Ingress' | 'Egress') => {
    const closing = policies.filter(({ spec }) => spec?.policyTypes?.includes(type));
    const grants = closing.flatMap(({ spec }) =>
      type === 'Ingress'
        ? (spec?.ingress ?? []).flatMap(({ _from, ports }) => match('saddr', _from, ports, pods, namespace))
        : (spec?.egress ?? []).flatMap(({ to, ports }) => match('daddr', to, ports, pods, namespace)),
    );
    return `
  chain ${type} {
    type filter hook ${type === 'Ingress' ? 'input' : 'output'} priority 0; policy accept;
    ct state established,related accept
    meta oifname "lo" accept
    meta iifname "lo" accept
    ${grants.map((grant) => `${grant} accept`).join('\n    ')}
    ${closing.length > 0 ? 'drop' : 'accept'}
  }`;
  };
  return `table ip sandkeep_test
delete table ip sandkeep_test
table ip sandkeep_test {${chain('Ingress')}${chain('Egress')}
}
`;
}

function match(
  side: 'saddr' | 'daddr',
  peers: readonly V1NetworkPolicyPeer[] | undefined,
  ports: readonly V1NetworkPolicyPort[] | undefined,
  pods: readonly V1Pod[],
  /** That of the policy. The namespace selectors of the service select all. */
  namespace: string,
): string[] {
  const addresses = (peers ?? []).flatMap(({ ipBlock, podSelector, namespaceSelector }) =>
    ipBlock
      ? [ipBlock.cidr]
      : pods
          .filter(
            (pod) =>
              (namespaceSelector !== undefined || pod.metadata?.namespace === namespace) &&
              selects(podSelector, pod),
          )
          .flatMap(({ status }) => status?.podIP ?? []),
  );
  const from = addresses
    .filter((address) => !address.includes(':'))
    .map((address) => (address === '0.0.0.0/0' ? '' : `ip ${side} ${address}`));
  const kinds = (ports ?? [{}]).map(({ protocol, port, endPort }) => {
    if (protocol === undefined) return '';
    const range = endPort === undefined ? String(port) : `${String(port)}-${endPort}`;
    return port === undefined
      ? `meta l4proto ${protocol.toLowerCase()}`
      : `${protocol.toLowerCase()} dport ${range}`;
  });
  return from.flatMap((address) => kinds.map((kind) => `${address} ${kind}`));
}

async function load(pid: string, script: string): Promise<void> {
  const nft = spawn('nsenter', ['--net', '--target', pid, 'nft', '-f', '-'], {
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  let said = '';
  nft.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  nft.stdin.on('error', () => undefined);
  nft.stdin.end(script);
  const code = await new Promise((resolve) => nft.once('close', resolve));
  if (code !== 0 && readdirSync('/proc').includes(pid)) throw new Error(`nft: ${said}`);
}
