import type { Context } from '../context.js';
import { deleteDeviceSignIns } from './device/queries.js';
import { deleteSessions } from './queries.js';

export async function deleteExpiredSessions({ pool, now }: Pick<Context, 'pool' | 'now'>): Promise<void> {
  await deleteSessions(pool, now());
  await deleteDeviceSignIns(pool, now());
}
