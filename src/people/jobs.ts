import type { Context } from '../context.js';
import { deleteLogoutTokens } from './queries.js';

export async function deleteUsedLogoutTokens({ pool, now }: Pick<Context, 'pool' | 'now'>): Promise<void> {
  await deleteLogoutTokens(pool, now());
}
