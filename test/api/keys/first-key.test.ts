import { expect, test } from 'vitest';
import { createFirstKey } from '../../../src/keys/first-key.js';
import { startForTest } from '../../support/service.js';

test('several processes that start an installation at once create one organization and one key', async () => {
  const { ctx } = await startForTest({ worker: false });
  const made = await Promise.all(Array.from({ length: 8 }, () => createFirstKey(ctx.pool)));
  expect(made.filter((key) => key !== undefined)).toMatchObject([{ org: { slug: 'default' } }]);
  const { rows } = await ctx.pool.query('select from api_keys');
  expect(rows).toHaveLength(1);
});
