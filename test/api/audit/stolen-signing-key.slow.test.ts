import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { CATALOGUE } from '../../../src/audit/events/catalogue.js';
import { type EventKeys } from '../../../src/audit/events/event-keys.js';
import { leafOf, linkOf, genesisLink } from '../../../src/audit/events/hash-chain.js';
import { recordEvent } from '../../../src/audit/events/record.js';
import { getHead, updateHead } from '../../../src/audit/log/chain-queries.js';
import { signCheckpoint } from '../../../src/audit/log/checkpoint.js';
import { insertDrop, listDrops, updateRetention } from '../../../src/audit/log/retention-queries.js';
import { signRetention } from '../../../src/audit/log/retention-signature.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { openEventKeys, rotateEventKey } from '../../../src/audit/log/signing-key.js';
import { BrokenLog } from '../../../src/audit/log/verify-head.js';
import { enforceRetention } from '../../../src/audit/retention/enforce.js';
import { setRetention } from '../../../src/audit/retention/set.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import { inTransaction } from '../../../src/db/transaction.js';
import { addMillis, now } from '../../../src/lib/instant.js';
import { run, runJson } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { tamper, wholeLog } from '../../support/event-log.js';
import { startTestService, type TestService } from '../../support/service.js';

/**
 * An attacker has the database and a copy of the keys, then the operator rotates the key. This service seals only on
 * request.
 */
let service: TestService;
let folder: string;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-stolen-'));
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

const never = new AbortController().signal;
const seal = (at = now) => sealEvents({ ...service.ctx, now: at }, never);
const enforce = () => enforceRetention(service.ctx, never);
const hex = (bytes: Buffer) => `'\\x${bytes.toString('hex')}'`;
/** Verifies with the keys alone, without the heads that this machine remembers. */
const verify = ({ org }: Client) => {
  const keys = service.ctx.eventKeys();
  return verifyStore(service.ctx.pool, org.id, { keys: keys.known }, { keys });
};
const endOf = ({ org }: Client) => inTransaction(service.ctx.pool, (tx) => getHead(tx, org.id));

/** Returns the stolen keys. */
function rotate(): EventKeys {
  const file = join(service.directory, 'event-keys');
  const keys = readFileSync(file, 'utf8');
  rotateEventKey(file);
  return openEventKeys({ keys })();
}

/** Writes events dated at these times. */
async function write({ org }: Client, ...times: string[]): Promise<void> {
  for (const at of times) {
    await recordEvent(service.ctx.pool, {
      orgId: org.id,
      type: 'quota_changed',
      actor: operator('test'),
      resourceId: null,
      at,
      payload: { before: {}, after: {} },
    });
  }
}

test('verification rejects a history rewritten under a replaced key', async () => {
  const { pool } = service.ctx;
  const [client, quiet] = [await service.newOrg(), await service.newOrg()];
  await client.post('/v1/volumes', { name: 'data' });
  await seal();
  const stolen = rotate();
  for (const one of [client, quiet]) {
    expect(await verify(one)).toMatchObject({
      wrong: expect.stringMatching(/^its end is signed by the key [0-9a-f]{16}, which [0-9a-f]{16} replaced/),
      fault: 'unsealed',
    });
  }
  await seal();
  await seal();
  for (const one of [client, quiet]) expect(await verify(one)).toMatchObject({ wrong: null, unsealed: 0 });

  let link = genesisLink(client.org.id);
  for (const entry of await wholeLog(pool, client.org.id)) {
    if (entry.seq === 2) {
      const forged = { ...entry.event!, payload: { forged: true } };
      entry.leaf = leafOf(forged);
      await tamper(pool, `update events set payload = '{"forged":true}' where id = '${entry.event_id}'`);
    }
    link = linkOf(link, entry);
    const set = `leaf = ${hex(entry.leaf)}, link = ${hex(link)}`;
    await tamper(
      pool,
      `update event_log set ${set} where org_id = '${client.org.id}' and seq = ${entry.seq}`,
    );
  }
  await tamper(pool, `delete from event_checkpoints where org_id = '${client.org.id}'`);
  await updateHead(pool, signCheckpoint(stolen, { ...(await endOf(client))!, link }), true);

  const wrong = `its end is signed by the key ${stolen.current.id}, which ${service.ctx.eventKeys().current.id} replaced`;
  expect((await verify(client)).wrong).toContain(wrong);
  await client.post('/v1/volumes', { name: 'more' });
  expect(await seal()).toEqual([{ orgId: client.org.id, error: expect.any(BrokenLog) }]);
  expect((await verify(client)).wrong).toContain(wrong);

  // Verification against the file reports the rewrite as well, or else that the file is from an earlier log.
  const file = join(folder, 'exported.ndjson');
  writeFileSync(file, (await client.request('GET', '/v1/events/export', {})).text);
  const words = ['events', 'verify', '--file', file, '--data-dir', service.directory];
  expect(await runJson(words)).toMatchObject({ wrong: null, replaced_key: stolen.current.id });
  expect((await run(words)).out).toContain(
    `; it ends in what the key ${stolen.current.id} signed, which was replaced: whoever has that one may have written it`,
  );
});

test('a replaced key can sign neither a retention setting nor a record of dropped events', async () => {
  const { pool } = service.ctx;
  const client = await service.newOrg();
  const long = '2001-01-01T00:00:00.000000Z';
  const past = '2020-05-05T05:05:05.000000Z';
  await write(client, long, past);
  await seal();
  await setRetention(service.ctx, client.org.id, 12 * (new Date().getFullYear() - 2010), operator('test'));
  await enforce();
  await seal();
  const stolen = rotate();
  await seal();
  await seal();
  const { current } = service.ctx.eventKeys();
  const [drop] = await listDrops(pool, client.org.id);
  expect(drop).toMatchObject({ dropped_before: expect.stringMatching(/^2010-/), key_id: current.id });
  expect(await verify(client)).toMatchObject({ wrong: null, unsealed: 0 });
  await enforce();

  await updateRetention(pool, signRetention(stolen, client.org.id, 1, now()));
  await expect(enforce()).rejects.toThrow(client.org.id);
  expect((await verify(client)).wrong).toBe(
    'the retention of 1 months was changed: the service did not sign it',
  );
  await setRetention(service.ctx, client.org.id, 1, operator('test'));
  await setRetention(service.ctx, client.org.id, null, operator('test'));
  await seal();
  expect((await verify(client)).wrong).toBeNull();

  const end = (await endOf(client))!;
  const { org_id, seq, link, at } = end;
  await insertDrop(
    pool,
    signCheckpoint(stolen, {
      org_id,
      seq,
      link,
      at,
      dropped_before: at,
      base_seq: drop!.base_seq,
      base_link: drop!.base_link,
    }),
  );
  await expect(enforce()).rejects.toThrow(client.org.id);
  const log = await wholeLog(pool, client.org.id);
  expect(log.some(({ occurred_at, event }) => occurred_at === past && event)).toBe(true);
  expect((await verify(client)).wrong).toMatch(/is signed by the key [0-9a-f]{16} after its replacement/);
});

test('the sealer accepts events marked under a replaced key for one week', async () => {
  const { pool } = service.ctx;
  const [early, late] = [await service.newOrg(), await service.newOrg()];
  await seal();
  const stolen = rotate();
  await seal();
  await seal();
  for (const { org } of [early, late]) {
    const event = {
      org_id: org.id,
      id: uuidv7(),
      occurred_at: now(),
      category: CATALOGUE.quota_changed.category,
      event_type: 'quota_changed',
      actor: operator('test'),
      resource_id: null,
      payload: { before: {}, after: {} },
    };
    const leaf = leafOf(event);
    await pool.query(
      `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id, leaf, mark)
       values ($1, $2, $3, $4, $5, $6, $7, 'system', 'operator', $8, $9)`,
      [
        org.id,
        event.id,
        event.occurred_at,
        event.category,
        event.event_type,
        JSON.stringify(event.actor),
        JSON.stringify(event.payload),
        leaf,
        stolen.mark(leaf),
      ],
    );
    if (org === early.org) await seal();
  }
  await seal(() => addMillis(now(), 8 * 86_400_000));
  expect(await verify(early)).toMatchObject({ wrong: null, unmarked: 0 });
  expect((await verify(late)).wrong).toMatch(/was inserted: it has no mark of the event keys/);
});
