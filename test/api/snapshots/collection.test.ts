import { expect, test } from 'vitest';
import { until } from '../../support/polling.js';
import { startForTest } from '../../support/service.js';
import { capture, startSmall } from '../../support/snapshots.js';

const MANY = 14;

test('organizations take turns when their deleted snapshots are removed, and a refused removal stops no other', async () => {
  const service = await startForTest();
  const [many, few] = [await service.newOrg(), await service.newOrg()];
  const source = await startSmall(many, 'source');
  for (let count = 0; count < MANY; count += 1) await capture(many, source, `one-${count}`);
  const { id: last } = await capture(few, await startSmall(few, 'source'), 'one');
  const { body } = await many.get('/v1/snapshots', { limit: 100 });
  const refused: string = body.data.at(-1).id;
  const removed: string[] = [];
  const snapshots = service.runtime.snapshots!;
  const remove = snapshots.remove.bind(snapshots);
  snapshots.remove = async (id) => {
    if (id === refused) return false;
    removed.push(id);
    return remove(id);
  };
  for (const { id } of body.data) await many.delete(`/v1/snapshots/${id}`);
  await few.delete(`/v1/snapshots/${last}`);
  await service.ctx.pool.query(`update snapshots set purge_at = now() where status = 'deleting'`);
  await until(
    async () => Promise.resolve(removed.length),
    (count) => count === MANY,
  );
  expect(removed.indexOf(last)).toBeLessThan(2);
  // The engine has removed the last one before the row says so.
  for (const [client, left] of [
    [few, 0],
    [many, 1],
  ] as const)
    await until(
      async () => (await client.get('/v1/quotas')).body.snapshots,
      (count) => count === left,
    );
});
