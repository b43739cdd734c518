import { exactProduct } from '../lib/exact-json.js';
import { shortInstant } from '../lib/instant.js';
import type { VolumeRow } from './queries.js';
import type { VolumeResponse } from './schema.js';

const GIB = 1024 ** 3;

export function presentVolume(row: VolumeRow): VolumeResponse {
  return {
    id: row.id,
    kind: row.kind,
    name: row.name,
    storage: 'block',
    status: row.status,
    labels: row.labels,
    capacity_bytes: row.capacity_gib === null ? null : exactProduct(row.capacity_gib, GIB),
    used_bytes: row.used_bytes,
    created_at: shortInstant(row.created_at),
    updated_at: shortInstant(row.updated_at),
  };
}
