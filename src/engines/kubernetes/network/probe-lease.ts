import type { V1Lease } from '@kubernetes/client-node';
import { randomUUID } from 'node:crypto';
import { sleep } from '../../../lib/sleep.js';
import type { Cluster } from '../client.js';
import { CONFLICT, ignoreStatus, NOT_FOUND, statusOf } from '../errors.js';
import { parseFindings, type Findings } from './findings.js';

const FINDINGS = 'sandkeep.dev/findings';
const LEASE_SECS = 15;
const RENEW_MS = 5_000;
const POLL_MS = 1_000;
/** The operator may give the cluster another network meanwhile. */
const ENFORCED_MS = 60 * 60_000;
const NOT_ENFORCED_MS = 60_000;

interface FindingsRecord {
  inputs: string;
  /** Milliseconds since 1970. */
  at: number;
  findings: Findings;
}

/** Those of the latest probe of an installation, whatever their age. Probes nothing. */
export async function latestFindings(
  cluster: Cluster,
  instanceId: string,
): Promise<FindingsRecord | undefined> {
  return recordIn(await readLease(cluster, nameOf(instanceId)));
}

function nameOf(instanceId: string): string {
  return `sandkeep-probe-${instanceId}`;
}

async function readLease({ coordination, namespace }: Cluster, name: string): Promise<V1Lease | undefined> {
  return coordination.readNamespacedLease({ name, namespace }).catch(ignoreStatus(NOT_FOUND));
}

function recordIn(lease: V1Lease | undefined): FindingsRecord | undefined {
  const text = lease?.metadata?.annotations?.[FINDINGS];
  if (text === undefined) return undefined;
  const record = JSON.parse(text) as { inputs: string; at: number; findings: unknown };
  const findings = parseFindings(JSON.stringify(record.findings));
  return findings && { ...record, findings };
}

/**
 * One process of an installation probes at a time, and the others use its findings. A lease that is not renewed has
 * lost its holder. The clocks of machines are never compared but for the age of findings.
 */
export class ProbeLease {
  private readonly holder = randomUUID();
  private readonly name: string;

  constructor(
    private readonly cluster: Cluster,
    instanceId: string,
    /** Findings of a probe with other inputs do not count. */
    private readonly inputs: string,
  ) {
    this.name = nameOf(instanceId);
  }

  async findings(probe: () => Promise<Findings>): Promise<Findings> {
    for (let seen: { renewal: string; at: number } | undefined; ; await sleep(POLL_MS)) {
      const lease = await this.read();
      const { holderIdentity, renewTime } = lease?.spec ?? {};
      if (!holderIdentity) {
        const known = this.knownFindings(lease);
        if (known) return known;
      }
      const renewal = `${holderIdentity} ${String(renewTime)}`;
      if (seen?.renewal !== renewal) seen = { renewal, at: performance.now() };
      const isFree = !holderIdentity || performance.now() - seen.at > LEASE_SECS * 1_000;
      if (!isFree) continue;
      const own = await this.take(lease);
      if (own) return this.probeAsHolder(own, probe);
    }
  }

  private async probeAsHolder(lease: V1Lease, probe: () => Promise<Findings>): Promise<Findings> {
    let own = lease;
    const stop = new AbortController();
    const renewals = (async () => {
      for (await sleep(RENEW_MS, stop.signal); !stop.signal.aborted; await sleep(RENEW_MS, stop.signal)) {
        own = (await this.replace(own, { holderIdentity: this.holder }).catch(() => undefined)) ?? own;
      }
    })();
    let found: Findings | undefined;
    try {
      found = await probe();
      return found;
    } finally {
      stop.abort();
      await renewals;
      const record = { inputs: this.inputs, at: Date.now(), findings: found };
      await this.replace(own, {}, found && JSON.stringify(record));
    }
  }

  private knownFindings(lease: V1Lease | undefined): Findings | undefined {
    const record = recordIn(lease);
    if (record?.inputs !== this.inputs) return undefined;
    const { at, findings } = record;
    return Date.now() - at < (findings.isEnforced ? ENFORCED_MS : NOT_ENFORCED_MS) ? findings : undefined;
  }

  private async read(): Promise<V1Lease | undefined> {
    return readLease(this.cluster, this.name);
  }

  /** Undefined: another process was faster. */
  private async take(lease: V1Lease | undefined): Promise<V1Lease | undefined> {
    if (lease) return this.replace(lease, { holderIdentity: this.holder });
    const { coordination, namespace } = this.cluster;
    return coordination
      .createNamespacedLease({ namespace, body: this.body({ holderIdentity: this.holder }) })
      .catch(ignoreStatus(CONFLICT));
  }

  private async replace(
    { metadata }: V1Lease,
    holder: { holderIdentity?: string },
    record?: string,
  ): Promise<V1Lease | undefined> {
    const { coordination, namespace } = this.cluster;
    const body = this.body(holder, metadata?.resourceVersion, record);
    try {
      return await coordination.replaceNamespacedLease({ name: this.name, namespace, body });
    } catch (error) {
      if (![CONFLICT, NOT_FOUND].includes(statusOf(error) ?? 0)) throw error;
      return undefined;
    }
  }

  private body(holder: { holderIdentity?: string }, resourceVersion?: string, record?: string): V1Lease {
    const { library, namespace } = this.cluster;
    return {
      metadata: {
        name: this.name,
        namespace,
        labels: { 'app.kubernetes.io/managed-by': 'sandkeep' },
        ...(resourceVersion === undefined ? {} : { resourceVersion }),
        ...(record === undefined ? {} : { annotations: { [FINDINGS]: record } }),
      },
      spec: {
        ...holder,
        leaseDurationSeconds: LEASE_SECS,
        renewTime: new library.V1MicroTime(),
      },
    };
  }
}
