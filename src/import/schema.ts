import { Type, type Static } from 'typebox';
import { EventActor } from '../audit/events/schema.js';
import { DateTime, Int32, Nullable, Uuid, Variants } from '../http/schema.js';
import { SandboxResponse } from '../sandboxes/row.js';

/** Short enough for every index. */
const text = Type.String({ minLength: 1, maxLength: 500 });
/** No control characters: a line break would forge a line in text output. */
const word = Type.String({ minLength: 1, maxLength: 500, pattern: '^[^\\u0000-\\u001f\\u007f]*$' });
const optionalTime = Type.Optional(Nullable(DateTime));

export const Line = Variants('kind', [
  Type.Object({ kind: Type.Literal('org'), id: Uuid, name: text, slug: text }),
  Type.Object({
    kind: Type.Literal('sandbox'),
    ...SandboxResponse.properties,
    name: text,
    slug: text,
    removed_at: optionalTime,
  }),
  Type.Object({
    kind: Type.Literal('run'),
    org_id: Uuid,
    id: Uuid,
    sandbox_id: Uuid,
    started_at: DateTime,
    stopped_at: Nullable(DateTime),
    vcpus: Int32(),
    memory_mib: Int32(),
    disk_mib: Int32(),
  }),
  Type.Object({
    kind: Type.Literal('volume'),
    org_id: Uuid,
    id: Uuid,
    volume_kind: Type.Unsafe<'host' | 'managed'>({ type: 'string', enum: ['host', 'managed'] }),
    name: Nullable(text),
    created_at: DateTime,
    removed_at: optionalTime,
  }),
  Type.Object({
    kind: Type.Literal('accrual'),
    org_id: Uuid,
    volume_id: Uuid,
    from: DateTime,
    to: DateTime,
    // Larger sums would exceed a double.
    used_mib: Type.Number({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  }),
  Type.Object({
    kind: Type.Literal('event'),
    id: Uuid,
    org_id: Uuid,
    timestamp: DateTime,
    category: word,
    event_type: word,
    actor: EventActor,
    payload: Type.Unknown(),
  }),
]);
export type Line = Static<typeof Line>;
export type Kind = Line['kind'];
