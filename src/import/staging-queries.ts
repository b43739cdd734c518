import { once } from 'node:events';
import { finished } from 'node:stream/promises';
import { from as copyFrom } from 'pg-copy-streams';
import { ADVISORY_LOCKS, lockAdvisory } from '../db/advisory-locks.js';
import type { Transaction } from '../db/transaction.js';
import type { Parsed } from './parse.js';
import type { Kind } from './schema.js';

/** COPY loads each kind into a temporary table, where SQL checks lines against each other. */
const COLUMNS: Record<Kind, string> = {
  org: 'id uuid, name text, slug text',
  sandbox: `org_id uuid, id uuid, name text, slug text, status text, status_reason text, ephemeral boolean,
    created_at timestamptz, last_failure_message text, spec json, spec_format smallint, started_at timestamptz, stopped_at timestamptz,
    removed_at timestamptz`,
  run: `org_id uuid, id uuid, sandbox_id uuid, vcpus int, memory_mib int, disk_mib int, started_at timestamptz,
    stopped_at timestamptz`,
  volume: 'org_id uuid, id uuid, kind text, name text, created_at timestamptz, removed_at timestamptz',
  accrual: 'org_id uuid, volume_id uuid, from_at timestamptz, to_at timestamptz, used_mib numeric',
  event: `org_id uuid, id uuid, occurred_at timestamptz, category text, event_type text, actor json, payload json,
    actor_kind text, actor_id text, resource_id uuid, mark bytea`,
};

/** The target table of each kind and its primary key. Events are recognized by the log. */
export const TABLES: Record<Exclude<Kind, 'event'>, { name: string; key: string[] }> = {
  org: { name: 'orgs', key: ['id'] },
  sandbox: { name: 'sandboxes', key: ['org_id', 'id'] },
  run: { name: 'runs', key: ['org_id', 'id'] },
  volume: { name: 'volumes', key: ['org_id', 'id'] },
  accrual: { name: 'accruals', key: ['org_id', 'volume_id', 'from_at'] },
};

export const KINDS = Object.keys(COLUMNS) as Kind[];

/** Waits for other imports, until the end of the transaction. */
export async function lockImports(tx: Transaction): Promise<void> {
  await lockAdvisory(tx, ADVISORY_LOCKS.imports);
}

export async function createStagingTables(tx: Transaction): Promise<void> {
  for (const kind of KINDS) {
    await tx.query(
      `create temporary table staged_${kind} (line int not null, ${COLUMNS[kind]}) on commit drop`,
    );
  }
}

/** Spreads the cost of a COPY over many rows without filling the memory. */
const BATCH_BYTES = 1024 * 1024;

export class StagingWriter {
  private readonly pending = new Map<Kind, string[]>(KINDS.map((kind) => [kind, []]));
  private bytes = 0;

  constructor(private readonly tx: Transaction) {}

  async add(line: number, { kind, values }: Parsed): Promise<void> {
    const row = `${[line, ...values].map(toCopyText).join('\t')}\n`;
    this.pending.get(kind)!.push(row);
    this.bytes += row.length;
    if (this.bytes >= BATCH_BYTES) await this.flush();
  }

  async flush(): Promise<void> {
    for (const [kind, rows] of this.pending) {
      if (rows.length === 0) continue;
      const stream = this.tx.query(copyFrom(`copy staged_${kind} from stdin`));
      const ended = finished(stream);
      for (const row of rows) if (!stream.write(row)) await Promise.race([once(stream, 'drain'), ended]);
      stream.end();
      await ended;
      rows.length = 0;
    }
    this.bytes = 0;
  }
}

function toCopyText(value: string | number | boolean | null): string {
  if (value === null) return '\\N';
  return String(value)
    .replaceAll('\\', '\\\\')
    .replaceAll('\n', '\\n')
    .replaceAll('\r', '\\r')
    .replaceAll('\t', '\\t');
}
