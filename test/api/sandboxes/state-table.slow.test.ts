import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { inTransaction } from '../../../src/db/transaction.js';
import { addMillis, now } from '../../../src/lib/instant.js';
import { recordObservations } from '../../../src/sandboxes/reconcile/record.js';
import { STATUSES, type SandboxStatus } from '../../../src/spec/statuses.js';
import {
  OPERATIONS,
  TRANSITIONS,
  type Occurrence,
  type Outcome,
} from '../../../src/sandboxes/lifecycle/state.js';
import type { Client } from '../../support/client.js';
import { destroyAll, onDocker } from '../../support/docker-service.js';
import { describeDocker, IMAGE, makeImage } from '../../support/docker.js';
import {
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  type TestNamespace,
} from '../../support/kubernetes.js';
import { startTestService, type TestOptions, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { untilStatus } from '../../support/polling.js';

/**
 * Every cell of the lifecycle table. Operations go over HTTP on each runtime, in sandboxes that reach their status as
 * in production. Occurrences are recorded as the reconciler does.
 */

const VCPUS = 1;
const cells = STATUSES.flatMap((status) => OPERATIONS.map((operation) => [status, operation] as const));

/** The event that a request records, by its outcome. */
const EVENTS: Partial<Record<Outcome, string>> = {
  starting: 'sandbox_start_requested',
  stopping: 'sandbox_stop_requested',
  queued: 'sandbox_start_queued',
};

/** Specifications of sandboxes that reach a status and stay in it. */
interface Specs {
  stays: Record<string, unknown>;
  fails: Record<string, unknown>;
}

function everyOperation(runtime: () => TestOptions, specs: Specs): void {
  let working: TestService;
  /** A service without a worker: its starts stay in progress. */
  let idle: TestService;
  let clients: Record<'working' | 'idle', Client>;
  beforeAll(async () => {
    working = await startTestService(runtime());
    idle = await startTestService({ ...runtime(), worker: false });
    clients = { working: await working.newOrg(), idle: await idle.newOrg() };
    const { runtime: engine } = working;
    const stop = engine.stop.bind(engine);
    engine.stop = async (id, graceMs) => {
      await holds.get(id);
      await stop(id, graceMs);
    };
  });
  afterAll(async () => {
    await destroyAll(working, clients.working);
    await Promise.all([working.close(), idle.close()]);
  });

  let count = 0;
  /** Stops of sandboxes wait for these. Each ends with its test: an engine carries out few stops at once. */
  const holds = new Map<string, Promise<void>>();

  /** A new sandbox in this status, and its client. */
  async function sandboxIn(status: SandboxStatus): Promise<{ client: Client; id: string }> {
    const client = status === 'starting' ? clients.idle : clients.working;
    const spec = status === 'failed' ? specs.fails : specs.stays;
    count += 1;
    const { body } = await client.post(
      '/v1/sandboxes',
      { name: `s-${count}`, resources: { vcpus: VCPUS, memory_mib: 64 }, ...spec },
      status === 'created' ? {} : { start: true },
    );
    if (status === 'stopped' || status === 'stopping') {
      await untilStatus(client, body.id, 'running');
      if (status === 'stopping')
        holds.set(body.id, new Promise((resolve) => onTestFinished(() => resolve())));
      await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    }
    await untilStatus(client, body.id, status);
    return { client, id: body.id };
  }

  test.each(cells)('%s: %s', async (status, operation) => {
    const outcome = TRANSITIONS[status][operation];
    const { client, id } = await sandboxIn(status);
    const path = `/v1/sandboxes/${id}`;
    const eventsOf = async () =>
      (await client.get('/v1/events', { resource_id: id, limit: 100 })).body.data as { event_type: string }[];
    const before = await eventsOf();
    const answer =
      operation === 'destroy' ? await client.delete(path) : await client.post(`${path}/${operation}`, {});
    const types = (await eventsOf()).slice(0, -before.length).map(({ event_type }) => event_type);
    if (operation === 'pause' && !working.runtime.capabilities.has('pause')) {
      expect([answer.status, answer.body.error.code, types]).toEqual([501, 'not_supported', []]);
      await client.delete(path);
      return;
    }
    if (outcome === 'refused') {
      expect([answer.status, answer.body.error.code, answer.body.error.details]).toEqual([
        409,
        'invalid_state_transition',
        { status, operation },
      ]);
      expect((await client.get(path)).body.status).toBe(status);
      expect(types).toEqual([]);
    } else if (outcome === 'gone') {
      expect(answer.status).toBe(200);
      expect((await client.get(path)).status).toBe(404);
      expect(types).toContain('sandbox_destroyed');
    } else {
      expect([answer.status, answer.body.status]).toEqual([
        200,
        ['same', 'queued'].includes(outcome) ? status : outcome,
      ]);
      if (outcome === 'same') expect(types).toEqual([]);
      else expect(types).toContain(operation === 'pause' ? 'sandbox_pause_requested' : EVENTS[outcome]);
    }
    // Others need its room.
    if (outcome !== 'gone') await client.delete(path);
  });
}

describe('the lifecycle table of operations, simulated runtime', () => {
  const image = { type: 'oci', reference: 'busybox' };
  everyOperation(
    () => ({
      simulated: {
        failStart: ({ spec }) => (spec.image === 'fails' ? 'it fails' : undefined),
      },
    }),
    { stays: { image }, fails: { image: { type: 'oci', reference: 'fails' } } },
  );
});

describeDocker('the lifecycle table of operations, Docker', () => {
  beforeAll(() => makeImage());
  const container = (script: string) => ({
    image: { type: 'oci', reference: IMAGE },
    pull_policy: 'never',
    network: { enabled: false },
    runtime: { cmd: ['sh', '-c', script] },
    lifecycle: { ends_with_command: true },
  });
  everyOperation(
    () => ({
      ...onDocker({ capacity: { vcpus: 1_000 } }),
      settings: { stopGraceMs: 2_000 },
    }),
    {
      stays: container('trap "exit 0" TERM; while :; do sleep 0.1; done'),
      fails: container('exit 7'),
    },
  );
});

describeKubernetes('the lifecycle table of operations, Kubernetes', () => {
  let namespace: TestNamespace;
  beforeAll(async () => {
    namespace = await openNamespace();
  });
  afterAll(() => namespace.remove());
  const pod = (script: string) => ({
    image: { type: 'oci', reference: NODE_IMAGE },
    pull_policy: 'never',
    runtime: { entrypoint: [], cmd: ['sh', '-c', script] },
    lifecycle: { ends_with_command: true },
  });
  everyOperation(() => ({ ...namespace.service(), settings: { stopGraceMs: 2_000 } }), {
    stays: pod('trap "exit 0" TERM; while :; do sleep 0.1; done'),
    fails: pod('exit 7'),
  });
});

describe('the lifecycle table of occurrences', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    service = await startTestService({ worker: false });
    client = await service.newOrg();
  });
  afterAll(() => service.close());

  const occurrences = Object.keys(TRANSITIONS.starting).filter(
    (event) => !(OPERATIONS as readonly string[]).includes(event),
  ) as Occurrence[];
  const facts = STATUSES.flatMap((status) => occurrences.map((occurrence) => [status, occurrence] as const));

  test.each(facts)('%s: %s', async (status, occurrence) => {
    const { pool } = service.ctx;
    const image = { type: 'oci', reference: 'busybox' };
    const name = `${status}-${occurrence}`.replaceAll('_', '-');
    const { body } = await client.post('/v1/sandboxes', { name, image }, { start: true });
    const open = ['starting', 'running', 'stopping'].includes(status);
    const startedAt = now();
    await pool.query('update sandboxes set status = $2, status_reason = null where id = $1', [
      body.id,
      status,
    ]);
    const { rows } = await pool.query('select run_id from sandboxes where id = $1', [body.id]);
    const runId = rows[0].run_id as string;
    const hasStarted = status === 'running' || (occurrence !== 'start_failed' && occurrence !== 'run_lost');
    if (status === 'running') {
      await pool.query('update runs set started_at = $2, seen_at = $2 where id = $1', [runId, startedAt]);
    }
    if (!open) {
      await pool.query(
        "update runs set started_at = $2, stopped_at = $2, end_reason = 'requested' where id = $1",
        [runId, startedAt],
      );
    }
    const events = async () => (await client.get('/v1/events', { resource_id: body.id })).body.data.length;
    const before = await events();
    const observe = (run: string) =>
      inTransaction(pool, (tx) =>
        recordObservations(service.ctx, tx, [
          {
            orgId: client.org.id,
            sandboxId: body.id,
            runId: run,
            occurrence,
            startedAt: hasStarted ? startedAt : null,
            stoppedAt: hasStarted && occurrence !== 'run_started' ? now() : null,
            reason: occurrence,
            message: 'what happened',
            exit: null,
          },
        ]),
      );
    const statusNow = async () => (await client.get(`/v1/sandboxes/${body.id}`)).body.status;
    // An observation of another run has no effect.
    await observe(uuidv7());
    expect([await statusNow(), await events()]).toEqual([status, before]);

    await observe(runId);
    const outcome = TRANSITIONS[status][occurrence];
    const then = outcome === 'same' ? status : outcome;
    expect(await statusNow()).toBe(then);
    const after = await events();
    if (!open) expect(after).toBe(before);
    if (outcome !== 'same') expect(after).toBeGreaterThan(before);
    const run = await pool.query('select end_reason is null as open from runs where id = $1', [runId]);
    expect(run.rows[0].open).toBe(['starting', 'running', 'stopping'].includes(then));
    // A repeated observation changes nothing.
    await observe(runId);
    expect([await statusNow(), await events()]).toEqual([then, after]);
  });
});

test('events written in one transaction keep their order, also when the clock goes back', async () => {
  let back = 0;
  const service = await startTestService({ worker: false, now: () => addMillis(now(), (back -= 1_000)) });
  try {
    const client = await service.newOrg();
    const { pool } = service.ctx;
    const { body } = await client.post('/v1/sandboxes', smallRequest('back'), { start: true });
    const { rows } = await pool.query('select run_id from sandboxes where id = $1', [body.id]);
    await inTransaction(pool, (tx) =>
      recordObservations(service.ctx, tx, [
        {
          orgId: client.org.id,
          sandboxId: body.id,
          runId: rows[0].run_id,
          occurrence: 'run_ended',
          startedAt: now(),
          stoppedAt: now(),
          reason: 'exited',
          message: null,
          exit: null,
        },
      ]),
    );
    const queued = await pool.query(
      `select event_type from unsealed_events where org_id = $1 and category = 'sandbox' order by place`,
      [client.org.id],
    );
    expect(queued.rows.map(({ event_type }) => event_type)).toEqual([
      'sandbox_created',
      'sandbox_start_requested',
      'sandbox_started',
      'sandbox_stopped',
    ]);
  } finally {
    await service.close();
  }
});
