import type { Context } from '../context.js';
import { shortInstant } from '../lib/instant.js';
import { sandboxUsage, storageUsage, volumeIdentities } from './queries.js';
import type { SandboxUsage, StorageUsage } from './schema.js';
import { readWindow } from './window.js';

export interface UsageQuery {
  since?: string;
  until?: string;
}

/** Compute used by each sandbox on each UTC day. The directory names every sandbox that a row does, removed ones too. */
export async function sandboxBreakdown(
  ctx: Context,
  orgId: string,
  query: UsageQuery,
): Promise<SandboxUsage> {
  const rows = await sandboxUsage(ctx.pool, orgId, readWindow(query, ctx.now()));
  const directory = new Map(rows.map(({ sandbox_id: id, name, slug }) => [id, { id, name, slug }]));
  return {
    rows: rows.map(({ day, sandbox_id, vcpu_seconds, mem_mib_seconds, disk_mib_seconds }) => ({
      day: shortInstant(day),
      ...{ sandbox_id, vcpu_seconds, mem_mib_seconds, disk_mib_seconds },
    })),
    sandboxes: [...directory.values()],
  };
}

/** Storage used by each volume on each UTC day. A volume that is gone has rows but no entry in the directory. */
export async function storageBreakdown(
  ctx: Context,
  orgId: string,
  query: UsageQuery,
): Promise<StorageUsage> {
  const rows = await storageUsage(ctx.pool, orgId, readWindow(query, ctx.now()));
  const ids = [...new Set(rows.map(({ volume_id }) => volume_id))];
  return {
    rows: rows.map(({ day, volume_id, mib_seconds }) => ({ day: shortInstant(day), volume_id, mib_seconds })),
    volumes: ids.length === 0 ? [] : await volumeIdentities(ctx.pool, orgId, ids),
  };
}
