import { registeredKeyIds } from '../audit/log/key-queries.js';
import { readVerifications, type VerificationState } from '../audit/verify/verification-queries.js';
import { readInstance } from '../db/instance-queries.js';
import type { Pool, Sql } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { now, shortInstant } from '../lib/instant.js';
import { VERSION } from '../lib/version.js';
import {
  countSandboxes,
  firstWaitingRun,
  readDatabaseState,
  readLeases,
  readLogState,
  readMeteringLag,
  readWebhookState,
  type DatabaseState,
  type LogState,
  type WebhookState,
} from '../metrics/state-queries.js';
import { admittedMillis } from '../runs/run-id.js';
import { readInstallation } from '../engines/queries.js';
import { countWaiting, countWaitReasons, readWaitWords } from '../sandboxes/placement/wait-queries.js';
import { countPasskeys } from '../people/passkeys/queries.js';
import { sealingKeys } from '../secrets/queries.js';
import { listWorkers, type WorkerRow } from '../workers/queries.js';
import type { StoredInstallation } from './doctor-installation.js';

const STATEMENT_TIMEOUT_MS = 10_000;

export interface OrgUse {
  org: string;
  sandboxes: number;
  running: number;
}

export type WorkerUse = WorkerRow & { holder: string; lease_remaining_secs: number };

/** The state of an installation, from one snapshot of its database. */
export interface InstallationState {
  at: string;
  version: string;
  database: { kind: 'embedded' | 'external'; version: string } & DatabaseState;
  /** By status. */
  sandboxes: Record<string, number>;
  organizations: OrgUse[];
  workers: WorkerUse[];
  waiting: {
    runs: number;
    vcpus: number;
    oldest_secs: number;
    reasons: Record<string, number>;
    needs: { words: string; runs: number }[];
  };
  event_log: LogState & { verification: VerificationState };
  webhooks: WebhookState;
  metering: { volumes: number; runs: number };
}

export async function readState(
  pool: Pool,
  kind: 'embedded' | 'external',
): Promise<{ state: InstallationState; stored: StoredInstallation }> {
  return inTransaction(pool, async (tx) => {
    await tx.query(
      `set transaction isolation level repeatable read, read only; set local statement_timeout = ${STATEMENT_TIMEOUT_MS}`,
    );
    const { rows } = await tx.query<{ version: string }>(
      "select current_setting('server_version') as version",
    );
    const state = {
      at: shortInstant(now()),
      version: VERSION,
      database: { kind, version: rows[0]!.version, ...(await readDatabaseState(tx)) },
      ...(await readSandboxes(tx)),
      workers: await readWorkers(tx),
      waiting: await readWaiting(tx),
      event_log: { ...(await readLogState(tx)), verification: await readVerifications(tx) },
      webhooks: await readWebhookState(tx),
      metering: await readMeteringLag(tx),
    };
    const keys = { secrets: await sealingKeys(tx), events: await registeredKeyIds(tx) };
    const { id: instanceId } = await readInstance(tx);
    const passkeys = await countPasskeys(tx);
    return { state, stored: { ...(await readInstallation(tx)), instanceId, keys, passkeys } };
  });
}

async function readSandboxes(sql: Sql): Promise<Pick<InstallationState, 'sandboxes' | 'organizations'>> {
  const sandboxes: Record<string, number> = {};
  const orgs = new Map<string, OrgUse>();
  for (const { org, status, count } of await countSandboxes(sql, true)) {
    sandboxes[status] = (sandboxes[status] ?? 0) + count;
    const use = orgs.get(org!) ?? { org: org!, sandboxes: 0, running: 0 };
    use.sandboxes += count;
    if (status === 'running') use.running += count;
    orgs.set(org!, use);
  }
  const organizations = [...orgs.values()].toSorted(
    (a, b) => b.running - a.running || b.sandboxes - a.sandboxes || (a.org < b.org ? -1 : 1),
  );
  return { sandboxes, organizations };
}

async function readWorkers(sql: Sql): Promise<WorkerUse[]> {
  const leases = new Map((await readLeases(sql)).map((lease) => [lease.id, lease]));
  return (await listWorkers(sql, null)).map((worker) => ({
    ...worker,
    holder: leases.get(worker.id)?.holder ?? '',
    lease_remaining_secs: leases.get(worker.id)?.remaining_secs ?? 0,
  }));
}

async function readWaiting(sql: Sql): Promise<InstallationState['waiting']> {
  const waiting = await countWaiting(sql);
  const first = await firstWaitingRun(sql);
  const reasons = (await countWaitReasons(sql)).map(
    ({ reason, runs }) => [reason ?? 'scheduling', runs] as const,
  );
  return {
    runs: waiting.reduce((sum, { runs }) => sum + runs, 0),
    vcpus: waiting.reduce((sum, { vcpus }) => sum + vcpus, 0),
    oldest_secs: first === null ? 0 : Math.max(0, (Date.now() - admittedMillis(first)) / 1_000),
    reasons: Object.fromEntries(reasons),
    needs: await readWaitWords(sql),
  };
}
