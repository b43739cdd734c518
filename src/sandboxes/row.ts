import { Type, type Static } from 'typebox';
import { isNarrowed, type Access } from '../access/access.js';
import { DateTime, Field, Named, Nullable, PageOf, Uuid, Words } from '../http/schema.js';
import {
  flag,
  instant,
  nullable,
  object,
  OMITTED,
  shapeOf,
  specification,
  text,
  words,
  type RowOf,
  type TextRow,
} from './row-kinds.js';
import { SandboxCommand, SandboxStatus, SandboxStatusReason, StopReason } from '../spec/statuses.js';
import { SandboxSpec } from '../spec/specification.js';

const SandboxSource = Named(
  'SandboxSource',
  {
    start: Words(['warm', 'cold'], {
      description:
        '`warm`: it took a sandbox of a pool, which ran already. `cold`: it was started for its create.',
    }),
    pool: Field(
      Nullable(Type.String()),
      'The pool with the image, of several the one that differs least. Null: the key of the request is limited to labels.',
    ),
    reason: Field(
      Nullable(Words(['differs', 'none_ready'])),
      'Why the start was cold. `differs`: the pool cannot give what `differs` names. `none_ready`: the pool had no sandbox ready. Null: it was warm.',
    ),
    differs: Type.Array(Type.String(), {
      description: 'The fields of the create that a running sandbox of the pool cannot take over.',
    }),
  },
  'How the first run of a sandbox began, beside a pool.',
);
export type SandboxSource = Static<typeof SandboxSource>;

/**
 * The fields of a sandbox. Each is a column of `sandboxes`, a property of every answer and a part of both serializers.
 */
export const SANDBOX_FIELDS = {
  id: words<string>()(Field(Uuid, 'The id of the sandbox.')),
  org_id: words<string>()(Field(Uuid, 'The organization that the sandbox belongs to.')),
  name: text(Type.String({ description: 'The name of the sandbox, unique in the organization.' })),
  slug: text(Type.String({ description: 'The slug of the sandbox, unique in the installation.' })),
  status: words<SandboxStatus>()(SandboxStatus),
  ephemeral: flag(Type.Boolean({ description: 'Whether the sandbox is removed when its run ends.' })),
  created_at: instant(Field(DateTime, 'The time at which the sandbox was created.')),
  last_failure_message: nullable(
    text,
    Type.Optional(
      Nullable(
        Type.String({
          description:
            'The reason for the latest failure, or for its wait for room while it is `starting`. Null: there is none.',
        }),
      ),
    ),
  ),
  spec: nullable(
    specification,
    Type.Optional(Field(Nullable(SandboxSpec), 'The specification with all defaults filled in.')),
  ),
  started_at: nullable(
    instant,
    Type.Optional(Field(Nullable(DateTime), 'The time at which the latest run began. Null: it never ran.')),
  ),
  stopped_at: nullable(
    instant,
    Type.Optional(
      Field(Nullable(DateTime), 'The time at which the latest run ended. Null: it runs, or it never ran.'),
    ),
  ),
  status_reason: nullable(
    words<SandboxStatusReason>(),
    Type.Optional(
      Field(Nullable(SandboxStatusReason), 'The reason for which it is still `starting`, else null.'),
    ),
  ),
  stop_reason: nullable(
    words<StopReason>(),
    Type.Optional(
      Field(
        Nullable(StopReason),
        'An extension: why the latest run ended. Null: it has not ended, or it was imported.',
      ),
    ),
  ),
  stop_message: nullable(
    text,
    Type.Optional(
      Nullable(Type.String({ description: 'An extension: `stop_reason` in a sentence for people.' })),
    ),
  ),
  paused_at: nullable(
    instant,
    Type.Optional(
      Field(
        Nullable(DateTime),
        'An extension: the time since which its memory is on the disk. Its next start continues it. Null: it is not paused.',
      ),
    ),
  ),
  command: nullable(
    object<SandboxCommand>(),
    Type.Optional(
      Field(
        Nullable(SandboxCommand),
        'An extension: the command of the latest run. Null: it has none, or has not started.',
      ),
    ),
  ),
  image_digest: nullable(
    text,
    Type.Optional(
      Nullable(
        Type.String({
          description:
            'The digest of the image that its disk was made from. Null: it never ran, or the runtime does not tell.',
        }),
      ),
    ),
  ),
  runtime: nullable(
    text,
    Type.Optional(
      Nullable(Type.String({ description: 'The runtime it belongs to; null for imported history.' })),
    ),
  ),
  disk_snapshot_id: nullable(
    words<string>(),
    Type.Optional(
      Field(
        Nullable(Uuid),
        'An extension: the snapshot that its disk was made from, which may be deleted by now. Null: an image.',
      ),
    ),
  ),
  source: nullable(
    object<SandboxSource>(),
    Type.Optional(
      Field(
        Nullable(SandboxSource),
        'An extension: how its first run began, beside a pool. Null: no pool of the organization has its image, or the create started nothing.',
      ),
    ),
  ),
};

export const SANDBOX = shapeOf(SANDBOX_FIELDS);

export type SandboxRow = RowOf<typeof SANDBOX_FIELDS>;
/** A sandbox as reads send it on. */
export type SandboxTextRow = TextRow<keyof typeof SANDBOX_FIELDS>;

export const SandboxResponse = Named('SandboxResponse', SANDBOX.properties, 'An isolated compute sandbox.');
export type SandboxResponse = Static<typeof SandboxResponse>;

export const PaginatedSandboxResponse = PageOf('PaginatedSandboxResponse', SandboxResponse);

/** False when a short read left the specification out. */
export function hasSpec(row: SandboxTextRow): boolean {
  return row.spec !== OMITTED;
}

/** The public view of a row for a caller. Other columns never leave the service. */
export function presentSandbox(row: SandboxRow, access: Pick<Access, 'labels'>): SandboxResponse {
  return SANDBOX.present(isNarrowed(access) ? { ...row, source: startAlone(row.source) } : row);
}

/** The same as JSON text. */
export function sandboxText(row: SandboxTextRow, access: Pick<Access, 'labels'>): string {
  if (!isNarrowed(access) || row.source === null) return SANDBOX.json(row);
  const source = startAlone(JSON.parse(String(row.source)) as SandboxSource);
  return SANDBOX.json({ ...row, source: JSON.stringify(source) });
}

/** Pools belong to the whole organization, so a key that is narrowed to labels learns nothing of them. */
function startAlone(source: SandboxSource | null): SandboxSource | null {
  return source && { start: source.start, pool: null, reason: null, differs: [] };
}
