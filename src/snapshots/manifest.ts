import { createHash } from 'node:crypto';
import type { Instant } from '../lib/instant.js';
import type { SnapshotRow } from './queries.js';
import type { SnapshotManifest } from './schema.js';

/** The form of a digest for an image of which the engine tells none. */
const UNKNOWN_DIGEST = `sha256:${'0'.repeat(64)}`;

type Described = Pick<
  SnapshotRow,
  'created_at' | 'parent_digest' | 'image' | 'image_digest' | 'sandbox_name' | 'record_integrity' | 'labels'
> & { size_bytes: number; content_digest: string; disk_mib: number | null };

/** The file that the content of a snapshot is. */
const FORMS = {
  imageLayer: { format: 'raw', fstype: 'oci-layer', file: 'layer.tar' },
  disk: { format: 'qcow2', fstype: 'ext4', file: 'layer.qcow2' },
} as const;

/** The descriptor, with its fields in their canonical order. */
export function manifestOf(row: Described): SnapshotManifest {
  const { format, fstype, file } = row.disk_mib === null ? FORMS.imageLayer : FORMS.disk;
  return {
    schema: 1,
    artifact: 'snapshot',
    scope: 'disk',
    created_at: shortestInstant(row.created_at),
    parent: row.parent_digest,
    image: { ref: row.image, manifest_digest: row.image_digest ?? UNKNOWN_DIGEST },
    source_sandbox: row.sandbox_name,
    state: {
      kind: 'file',
      format,
      fstype,
      upper: {
        file,
        size_bytes: row.size_bytes,
        integrity: row.record_integrity ? { algorithm: 'sha256', digest: row.content_digest } : null,
      },
    },
    labels: row.labels,
    extensions: {},
    requires: [],
  };
}

/** The canonical form: a fraction without zeros at its end. An instant always has six digits. */
function shortestInstant(instant: Instant): string {
  return instant.replace(/\.?0+Z$/, 'Z');
}

/**
 * The digest of the canonical form, which clients compare: JSON without spaces, the fields in their order, and the
 * labels in the order of their bytes.
 */
export function digestOf(manifest: SnapshotManifest): string {
  const fields = Object.entries(manifest).map(([name, value]) => {
    const text = name === 'labels' ? canonicalMap(manifest.labels) : JSON.stringify(value);
    return `${JSON.stringify(name)}:${text}`;
  });
  return `sha256:${createHash('sha256')
    .update(`{${fields.join(',')}}`)
    .digest('hex')}`;
}

function canonicalMap(map: Record<string, string>): string {
  const entries = Object.entries(map).toSorted(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return `{${entries.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`).join(',')}}`;
}
