import { Type } from 'typebox';
import { DateTime, Nullable, Uuid } from '../../http/schema.js';
import { CALLER, event, SYSTEM } from './catalogue-entry.js';

const text = Type.String();
const snapshot = { snapshot_id: Uuid, name: text };
const source = { ...snapshot, sandbox_id: Uuid, sandbox_name: text };
/** Null: the snapshot was imported. */
const anySource = { ...snapshot, sandbox_id: Nullable(Uuid), sandbox_name: Nullable(text) };
const bytes = Type.Integer({ minimum: 0 });
const ANYONE = [...CALLER, ...SYSTEM] as const;

export const SNAPSHOT_EVENTS = {
  snapshot_requested: event('snapshot', CALLER, 'A snapshot of a sandbox was requested.', source),
  snapshot_created: event(
    'snapshot',
    SYSTEM,
    'A snapshot is complete. Its usage begins. It replaces a snapshot of the same name if the request said so.',
    {
      ...source,
      image: text,
      size_bytes: bytes,
      digest: text,
      replaced_snapshot_id: Nullable(Uuid),
    },
  ),
  snapshot_failed: event('snapshot', ANYONE, 'A snapshot could not be made, or was cancelled.', {
    ...anySource,
    reason: Type.String({ description: 'The reason, as a code.' }),
    message: text,
  }),
  snapshot_imported: event(
    'snapshot',
    CALLER,
    'A snapshot was made of an archive, whose image has `image_digest`. Its usage begins.',
    { ...snapshot, image_digest: text, size_bytes: bytes, digest: text },
  ),
  snapshot_exported: event(
    'snapshot',
    CALLER,
    'The export of a snapshot began: its files leave the service. `image_digest`: of the manifest in the archive.',
    { ...snapshot, image_digest: text, bytes },
  ),
  snapshot_deletion_scheduled: event(
    'snapshot',
    ANYONE,
    'A snapshot was deleted or replaced, or no template needs it any more. It can be restored until `purge_at`. Its usage ends.',
    { ...snapshot, purge_at: DateTime },
  ),
  snapshot_restored: event('snapshot', CALLER, 'A deleted snapshot was restored.', snapshot),
  snapshot_purged: event(
    'snapshot',
    SYSTEM,
    'The time to restore a deleted snapshot is over, or the worker with a snapshot was removed. Its data is removed when no sandbox needs it.',
    snapshot,
  ),
};
