import type { Context } from '../../context.js';
import { deleteTickets } from './queries.js';

export async function deleteExpiredTickets({ pool, now }: Pick<Context, 'pool' | 'now'>): Promise<void> {
  await deleteTickets(pool, now());
}
