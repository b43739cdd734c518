import type { Reader } from '../access/reader.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { ImageConfig } from '../registry/image-config.js';
import type { TemplateConfig } from '../spec/template-config.js';
import type { BuildSandbox } from './schema.js';
import type { TemplateStatus } from './state.js';

/** The part of an image that the commands of a build begin with. */
export type BaseImage = Pick<ImageConfig, 'env' | 'user' | 'workdir'>;

export interface TemplateRow {
  org_id: string;
  id: string;
  name: string;
  tag: string;
  labels: Record<string, string>;
  /** Those that the key of the request was narrowed to: the build uses and replaces only templates with all of them. */
  key_labels: Readonly<Record<string, string>>;
  status: TemplateStatus;
  dockerfile: string;
  build_args: Record<string, string>;
  /** The name or the number of the stage that is built. Null: the last one. */
  target: string | null;
  sandbox: BuildSandbox;
  uses_cache: boolean;
  context_digest: string | null;
  context_bytes: number | null;
  timeout_secs: number;
  runtime: string;
  worker_id: string;
  actor: EventActor;
  /** That of the build. Null: there is none. */
  sandbox_id: string | null;
  steps: number;
  steps_done: number;
  steps_cached: number;
  snapshot_id: string | null;
  config: TemplateConfig | null;
  image_config: BaseImage | null;
  error_code: string | null;
  error_message: string | null;
  error_line: number | null;
  created_at: Instant;
  updated_at: Instant;
  started_at: Instant | null;
  completed_at: Instant | null;
}

const NAMES: readonly (keyof TemplateRow)[] = [
  'org_id',
  'id',
  'name',
  'tag',
  'labels',
  'key_labels',
  'status',
  'dockerfile',
  'build_args',
  'target',
  'sandbox',
  'uses_cache',
  'context_digest',
  'context_bytes',
  'timeout_secs',
  'runtime',
  'worker_id',
  'actor',
  'sandbox_id',
  'steps',
  'steps_done',
  'steps_cached',
  'snapshot_id',
  'config',
  'image_config',
  'error_code',
  'error_message',
  'error_line',
  'created_at',
  'updated_at',
  'started_at',
  'completed_at',
];
export const COLUMNS = NAMES.map((name) => `t.${name}`).join(', ');

/** With the size and the digest of its snapshot. Null: it has none. */
export type SizedTemplate = TemplateRow & { size_bytes: number | null; digest: string | null };
const SIZED = `${COLUMNS}, p.size_bytes, p.digest`;
const WITH_SIZE = 'templates t left join snapshots p on p.org_id = t.org_id and p.id = t.snapshot_id';

type Row<T> = T & Record<string, unknown>;
type Ref = Pick<TemplateRow, 'org_id' | 'id'>;

const SEEN = 't.org_id = $1 and t.labels @> $2::jsonb and t.removed_at is null';

export async function findTemplate(
  sql: Sql,
  { orgId, labels }: Reader,
  id: string,
  lock: '' | 'for update of t' = '',
): Promise<SizedTemplate | undefined> {
  const { rows } = await sql.query<Row<SizedTemplate>>(
    `select ${SIZED} from ${WITH_SIZE} where ${SEEN} and t.id = $3 ${lock}`,
    [orgId, JSON.stringify(labels), id],
  );
  return rows[0];
}

/** The succeeded template with the name and the tag. */
export async function findNamed(
  sql: Sql,
  { orgId, labels }: Reader,
  name: string,
  tag: string,
): Promise<SizedTemplate | undefined> {
  const { rows } = await sql.query<Row<SizedTemplate>>(
    `select ${SIZED} from ${WITH_SIZE} where ${SEEN} and t.name = $3 and t.tag = $4 and t.status = 'succeeded'`,
    [orgId, JSON.stringify(labels), name, tag],
  );
  return rows[0];
}

export interface TemplatePage {
  name: string | undefined;
  tag: string | undefined;
  statuses: readonly TemplateStatus[];
  after: readonly [createdAt: string, id: string] | undefined;
  limit: number;
}

/** The newest first. */
export async function listTemplates(
  sql: Sql,
  { orgId, labels }: Reader,
  { name, tag, statuses, after, limit }: TemplatePage,
): Promise<SizedTemplate[]> {
  const { rows } = await sql.query<Row<SizedTemplate>>(
    `select ${SIZED} from ${WITH_SIZE}
     where ${SEEN} and t.status = any ($3::text[]) and ($4::text is null or t.name = $4) and ($5::text is null or t.tag = $5)
       and ($6::timestamptz is null or (t.created_at, t.id) < ($6, $7::uuid))
     order by t.created_at desc, t.id desc limit $8`,
    [
      orgId,
      JSON.stringify(labels),
      statuses,
      name ?? null,
      tag ?? null,
      after?.[0] ?? null,
      after?.[1] ?? null,
      limit,
    ],
  );
  return rows;
}

export type NewTemplate = Pick<
  TemplateRow,
  | 'org_id'
  | 'id'
  | 'name'
  | 'tag'
  | 'labels'
  | 'key_labels'
  | 'dockerfile'
  | 'build_args'
  | 'target'
  | 'sandbox'
  | 'uses_cache'
  | 'context_digest'
  | 'context_bytes'
  | 'timeout_secs'
  | 'runtime'
  | 'worker_id'
  | 'actor'
  | 'steps'
  | 'created_at'
>;

export async function insertTemplate(sql: Sql, template: NewTemplate): Promise<TemplateRow> {
  const fields = Object.entries({ ...template, status: 'queued', updated_at: template.created_at });
  const { rows } = await sql.query<Row<TemplateRow>>(
    `insert into templates as t (${fields.map(([column]) => column).join(', ')})
     values (${fields.map((_, index) => `$${index + 1}`).join(', ')}) returning ${COLUMNS}`,
    fields.map(([, value]) => stored(value)),
  );
  return rows[0]!;
}

type TemplateChange = Partial<
  Pick<
    TemplateRow,
    | 'status'
    | 'sandbox_id'
    | 'steps_done'
    | 'steps_cached'
    | 'snapshot_id'
    | 'config'
    | 'image_config'
    | 'error_code'
    | 'error_message'
    | 'error_line'
    | 'started_at'
    | 'completed_at'
  >
> & { removed_at?: Instant };

export async function updateTemplate(
  sql: Sql,
  { org_id, id }: Ref,
  change: TemplateChange,
  at: Instant,
): Promise<TemplateRow> {
  const fields = Object.entries(change);
  const columns = fields.map(([column], index) => `${column} = $${index + 4}`);
  const { rows } = await sql.query<Row<TemplateRow>>(
    `update templates t set ${[...columns, 'updated_at = $3'].join(', ')} where t.org_id = $1 and t.id = $2
     returning ${COLUMNS}`,
    [org_id, id, at, ...fields.map(([, value]) => stored(value))],
  );
  return rows[0]!;
}

/** Objects are stored as JSON. */
function stored(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : value;
}

export async function lockTemplate(tx: Sql, { org_id, id }: Ref): Promise<TemplateRow | undefined> {
  const { rows } = await tx.query<Row<TemplateRow>>(
    `select ${COLUMNS} from templates t where t.org_id = $1 and t.id = $2 for update`,
    [org_id, id],
  );
  return rows[0];
}

/** Those that wait for their build, or are built. */
export async function countUnfinished(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    `select count(*)::int as count from templates where org_id = $1 and status in ('queued', 'building')`,
    [orgId],
  );
  return rows[0]!.count;
}
