import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { OpenSessions } from '../../../src/sandboxes/sessions/open-sessions.js';
import { insertSession, renewSessions, type SessionRow } from '../../../src/sandboxes/sessions/queries.js';
import { SessionRecorder } from '../../../src/sandboxes/sessions/recorder.js';
import { makeLostSessionEnds } from '../../../src/sandboxes/sessions/jobs.js';
import type { Client } from '../../support/client.js';
import { countWaitingCommits, whileCommitsWait } from '../../support/held-commits.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

/** Renewals come four times as often. */
const LOST_MS = 3_000;

let service: TestService;
let client: Client;
let sandboxId: string;
beforeAll(async () => {
  // On a busy machine a renewal may come later than LOST_MS. The job of the worker leaves those sessions alone.
  service = await startTestService({ settings: { sessionLostMs: 600_000 } });
  client = await service.newOrg();
  sandboxId = (await client.post('/v1/sandboxes', smallRequest('held'))).body.id;
});
afterAll(() => service.close());

function rowOf(id = uuidv7()): Omit<SessionRow, 'seen_at'> {
  const actor = { kind: 'api_key', api_key_id: client.keyId, name: 'test key' } as const;
  const details = { session_id: id, sandbox_id: sandboxId, name: 'held', kind: 'exec', user: null } as const;
  const opened_at = service.ctx.now();
  return {
    org_id: client.org.id,
    id,
    actor,
    opened_at,
    details: { ...details, program: 'sh', argument_count: 0 },
  };
}
const endsOf = async (id: string): Promise<any[]> => {
  const { rows } = await service.ctx.pool.query(
    `select payload from events where event_type = 'sandbox_session_ended' and payload ->> 'session_id' = $1`,
    [id],
  );
  return rows.map(({ payload }) => payload);
};
/** Settings of processes that renew often, and soon take a session for lost. */
const hurried = () => ({ ...service.ctx, settings: { ...service.ctx.settings, sessionLostMs: LOST_MS } });
/** Waits until the session has been renewed twice from now on. */
async function untilRenewed(id: string): Promise<void> {
  const seenAt = async () => {
    const { rows } = await service.ctx.pool.query<{ at: string }>(
      'select seen_at::text as at from sandbox_sessions where id = $1',
      [id],
    );
    return rows[0]!.at;
  };
  for (let times = 0; times < 2; times += 1) {
    const before = await seenAt();
    await until(seenAt, (at) => at !== before);
  }
}
const idsOf = async (): Promise<string[]> =>
  (await service.ctx.pool.query('select id from sandbox_sessions')).rows.map(({ id }) => String(id));
function recorder(
  sessions: OpenSessions,
  onLost: () => void = () => undefined,
  endAdmission: () => void = () => undefined,
): SessionRecorder {
  const { actor } = rowOf();
  const subject = { orgId: client.org.id, actor, sandboxId, name: 'held' };
  return new SessionRecorder(service.ctx, subject, sessions, {
    countMore: () => undefined,
    admitted: (work) => work(endAdmission),
    onLost,
    onFilesEnded: onLost,
  });
}

test('a session gives its turn back while its beginning waits for the disk', async () => {
  const sessions = new OpenSessions(service.ctx);
  const { pool } = service.ctx;
  let isOver = false;
  const { record } = await whileCommitsWait(pool, 'sandbox_sessions', async () => {
    const endAdmission = () => (isOver = true);
    const opened = recorder(sessions, undefined, endAdmission).open({
      kind: 'exec',
      user: null,
      args: ['sh'],
    });
    await until(
      () => Promise.resolve(isOver),
      (over) => over,
    );
    expect(await countWaitingCommits(pool)).toBe(1);
    return { record: opened };
  });
  (await record).end({ exitCode: 0, reason: 'exited' });
  await sessions.close();
});

test('a session that nobody renews ends once, as cut off', async () => {
  const lost = rowOf();
  await insertSession(service.ctx.pool, lost);
  const endLost = makeLostSessionEnds();
  const pass = () => endLost(hurried(), new AbortController().signal);
  const [end] = await until(
    async () => {
      await pass();
      return endsOf(lost.id);
    },
    (found) => found.length > 0,
  );
  expect(end).toMatchObject({ reason: 'cut_off', exit_code: null, bytes_in: null, program: 'sh' });
  expect(await idsOf()).toEqual([]);
  await pass();
  expect(await endsOf(lost.id)).toHaveLength(1);
});

test('an open session is renewed, and its end is recorded once', async () => {
  const sessions = new OpenSessions(hurried());
  const record = await recorder(sessions).open({ kind: 'exec', user: null, args: ['sh'] });
  const [id] = await idsOf();
  await untilRenewed(id!);
  record.end({ exitCode: 3, reason: 'exited' });
  record.end({ exitCode: 4, reason: 'exited' });
  await sessions.close();
  expect(await endsOf(id!)).toMatchObject([{ reason: 'exited', exit_code: 3 }]);
  expect(await idsOf()).toEqual([]);
});

test('a session whose end another process has recorded ends, without a second event', async () => {
  const sessions = new OpenSessions(hurried());
  let wasLost = false;
  const record = await recorder(sessions, () => (wasLost = true)).open({
    kind: 'exec',
    user: null,
    args: ['sh'],
  });
  const [id] = await idsOf();
  await service.ctx.pool.query('delete from sandbox_sessions');
  await until(
    async () => wasLost,
    (lost) => lost,
  );
  record.end({ exitCode: null, reason: 'cut_off' });
  await sessions.close();
  expect(await endsOf(id!)).toEqual([]);
});

test('an end that the database did not take is retried, and its session is not taken for lost', async () => {
  const sessions = new OpenSessions(hurried());
  const record = await recorder(sessions).open({ kind: 'exec', user: null, args: ['sh'] });
  const [id] = await idsOf();
  const refuse = `create function refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
    create trigger refuse before delete on sandbox_sessions for each row execute function refuse()`;
  await service.ctx.pool.query(refuse);
  record.end({ exitCode: 0, reason: 'exited' });
  await untilRenewed(id!);
  expect(await endsOf(id!)).toEqual([]);
  await service.ctx.pool.query('drop function refuse cascade');
  const ends = await until(
    () => endsOf(id!),
    (found) => found.length > 0,
  );
  expect(ends).toMatchObject([{ reason: 'exited', exit_code: 0 }]);
  await sessions.close();
});

test('a session of files that could not begin does so with the next operation', async () => {
  const { pool } = service.ctx;
  const sessions = new OpenSessions(service.ctx);
  const files = recorder(sessions);
  await pool.query(`create function refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
    create trigger refuse before insert on sandbox_sessions for each row execute function refuse()`);
  await expect(Promise.all([files.files(), files.files()])).rejects.toThrow('no');
  await pool.query('drop function refuse cascade');
  const record = await files.files();
  expect(await files.files()).toBe(record);
  const [id] = await idsOf();
  files.close('closed');
  await until(
    () => endsOf(id!),
    (ends) => ends.length > 0,
  );
  await sessions.close();
  expect(await endsOf(id!)).toMatchObject([{ reason: 'closed' }]);
});

test('after an outage of the database other processes get time to renew their sessions', async () => {
  const { ctx } = service;
  // Its job would take the row as well.
  await service.stopWorker();
  const end = makeLostSessionEnds();
  const { signal } = new AbortController();
  const broken = { ...ctx, pool: { query: () => Promise.reject(new Error('down')) } as never };
  const settings = { ...ctx.settings, sessionLostMs: 2 * LOST_MS };
  const id = uuidv7();
  await insertSession(ctx.pool, rowOf(id));
  await ctx.pool.query("update sandbox_sessions set seen_at = clock_timestamp() - interval '1 hour'");
  await expect(end({ ...broken, settings }, signal)).rejects.toThrow('down');
  await end({ ...ctx, settings }, signal);
  expect(await endsOf(id)).toEqual([]);
  await new Promise((resolve) => setTimeout(resolve, LOST_MS + 100));
  await expect(end({ ...broken, settings }, signal)).rejects.toThrow('down');
  await end({ ...ctx, settings }, signal);
  expect(await endsOf(id)).toEqual([]);
  await new Promise((resolve) => setTimeout(resolve, LOST_MS + 100));
  await Promise.all([end({ ...ctx, settings }, signal), end({ ...ctx, settings }, signal)]);
  expect(await endsOf(id)).toHaveLength(1);
});

test('after the clock of the database leapt ahead, other processes get time to renew their sessions', async () => {
  const { ctx } = service;
  await service.stopWorker();
  const { signal } = new AbortController();
  const settings = { ...ctx.settings, sessionLostMs: 2 * LOST_MS };
  let leap = 0;
  const query = async (text: string) => {
    const { rows } = await ctx.pool.query(text);
    return { rows: rows.map((row) => ({ at: Number(row['at']) + leap })) };
  };
  const leaping = {
    ...ctx,
    settings,
    pool: Object.create(ctx.pool, { query: { value: query } }) as typeof ctx.pool,
  };
  const end = makeLostSessionEnds();
  await end(leaping, signal);
  const id = uuidv7();
  await insertSession(ctx.pool, rowOf(id));
  await new Promise((resolve) => setTimeout(resolve, LOST_MS + 100));
  leap = 3_600_000;
  await ctx.pool.query("update sandbox_sessions set seen_at = clock_timestamp() - interval '1 hour'");
  await end(leaping, signal);
  expect(await endsOf(id)).toEqual([]);
  await new Promise((resolve) => setTimeout(resolve, LOST_MS + 100));
  await end(leaping, signal);
  expect(await endsOf(id)).toHaveLength(1);
});

test('two thousand open sessions are renewed by one statement', async () => {
  const { pool } = service.ctx;
  const rows = Array.from({ length: 2_000 }, () => rowOf());
  for (const row of rows) await insertSession(pool, row);
  await pool.query('analyze sandbox_sessions');
  const kept = await renewSessions(
    pool,
    rows.map(({ org_id: orgId, id }) => ({ orgId, id })),
  );
  expect(kept.size).toBe(2_000);
  await pool.query('delete from sandbox_sessions');
});
