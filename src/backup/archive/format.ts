import { Type, type Static } from 'typebox';

/** The version of the archive. A reader refuses a newer one. */
export const FORMAT = 1;

export const HEADER_ENTRY = 'sandkeep-backup.json';
export const MANIFEST_ENTRY = 'manifest.json';
/** A part is cut into entries of at most this size. */
export const PIECE_BYTES = 1024 * 1024;
/** The limit of the header and of the manifest. */
export const MAX_JSON_BYTES = 64 * 1024 * 1024;

export const SECRET_KEYS_PART = 'files/secret-keys';
export const EVENT_KEYS_PART = 'files/event-keys';
export const EVENT_HEADS_PART = 'files/event-heads';
/** The record of an engine that keeps it in the data directory. */
export const engineRecordPart = (directory: string) => `files/${directory}.tar`;

export const tablePart = (table: string) => `database/${table}`;
export const volumePart = (orgId: string, volumeId: string) => `volumes/${orgId}/${volumeId}.tar`;

const Uuid = Type.String({ pattern: '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' });
const Identifier = Type.String({ pattern: '^[a-z_][a-z0-9_]{0,62}$' });
const Count = Type.Integer({ minimum: 0 });

const Description = Type.Object({
  instanceId: Uuid,
  server: Type.String(),
  snapshot: Type.String(),
  migrations: Type.Array(
    Type.Object({ number: Type.Integer({ minimum: 1 }), name: Type.String(), checksum: Type.String() }),
  ),
  tables: Type.Array(Type.Object({ name: Identifier, columns: Type.Array(Identifier) })),
  eventPartitions: Type.Array(Identifier),
  identities: Type.Array(
    Type.Object({
      table: Identifier,
      column: Identifier,
      last: Type.Union([Type.String({ pattern: '^\\d{1,19}$' }), Type.Null()]),
    }),
  ),
});

export const Header = Type.Object({
  format: Type.Integer({ minimum: 1 }),
  product: Type.String(),
  takenAt: Type.String(),
  database: Description,
  /** Expressly left out, or kept elsewhere. */
  leftOut: Type.Array(Type.String()),
  volumes: Type.Array(Type.Object({ orgId: Uuid, volumeId: Uuid })),
});
export type Header = Static<typeof Header>;

const Part = Type.Object({
  name: Type.String(),
  bytes: Count,
  sha256: Type.String({ pattern: '^[0-9a-f]{64}$' }),
  /** A table has them. */
  rows: Type.Optional(Count),
  /** The volume was removed meanwhile: its part is not restored. */
  removed: Type.Optional(Type.Literal(true)),
});
export type Part = Static<typeof Part>;

export const Manifest = Type.Object({
  headerSha256: Type.String({ pattern: '^[0-9a-f]{64}$' }),
  parts: Type.Array(Part),
  /** Files that changed while they were read, and the like. */
  warnings: Type.Array(Type.String()),
});
export type Manifest = Static<typeof Manifest>;
