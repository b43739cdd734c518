import type { Context } from '../../context.js';
import { deleteChallenges } from './challenge-queries.js';

export async function deleteExpiredChallenges({ pool, now }: Pick<Context, 'pool' | 'now'>): Promise<void> {
  await deleteChallenges(pool, now());
}
