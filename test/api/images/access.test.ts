import { expect, test } from 'vitest';
import { recordImageAccess } from '../../../src/registry/stored-access.js';
import { storedImageAccess } from '../../../src/registry/stored-access.js';
import { startTestService } from '../../support/service.js';

test('the store remembers the latest proofs of each organization, and none of another', async () => {
  const service = await startTestService({ worker: false });
  try {
    const [a, b] = [(await service.newOrg()).org.id, (await service.newOrg()).org.id];
    const { pool } = service.ctx;
    const access = storedImageAccess(pool);
    const digest = (of: number) => `sha256:${String(of).repeat(64)}`;
    await access.record(a, 'docker.io/library/x:1', digest(1));
    await access.record(a, 'docker.io/library/x:1', digest(2));
    expect(await access.find(a, 'docker.io/library/x:1')).toEqual({
      digest: digest(2),
      ageMs: expect.any(Number),
    });
    expect(await access.find(b, 'docker.io/library/x:1')).toBeUndefined();
    await access.record(b, 'docker.io/library/x:1', digest(3));
    for (const reference of ['x:2', 'x:3'])
      await recordImageAccess(pool, a, { reference, digest: digest(4) }, 2);
    const { rows } = await pool.query('select org_id, reference from image_access order by proved_at');
    expect(rows).toEqual([
      { org_id: b, reference: 'docker.io/library/x:1' },
      { org_id: a, reference: 'x:2' },
      { org_id: a, reference: 'x:3' },
    ]);
  } finally {
    await service.close();
  }
});
