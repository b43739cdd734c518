import type { Context } from '../context.js';
import { deleteInvitations } from './invitation-queries.js';
import { deleteLinks } from './queries.js';

export async function deleteExpiredLinks({ pool, now }: Pick<Context, 'pool' | 'now'>): Promise<void> {
  await deleteLinks(pool, now());
  await deleteInvitations(pool, now());
}
