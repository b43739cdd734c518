import { SingleBar } from 'cli-progress';
import { Option, type Command } from 'commander';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { counted } from '../lib/counted.js';
import { operator } from '../audit/events/actor.js';
import { lockPartitions } from '../audit/events/partition-queries.js';
import {
  EXPORT_FORMATS,
  exportText,
  startExport,
  type ExportFormat,
  type StartedExport,
} from '../audit/export/export.js';
import type { FilterQuery } from '../audit/list/filter.js';
import { OCSF_VERSION } from '../audit/ocsf/mapping.js';
import { inTransaction } from '../db/transaction.js';
import { FileDraft } from '../lib/atomic-file.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { explained } from './explained.js';
import { namedOrg } from './named-org.js';

interface ExportOptions extends CommonOptions {
  org: string;
  since?: string;
  until?: string;
  type?: string[];
  category?: string[];
  actorKind?: string[];
  actorId?: string[];
  resource?: string[];
  afterSeq: number;
  csv?: true;
  format?: ExportFormat;
  out?: string;
  force?: true;
}

const HELP = `
A whole export as NDJSON can be checked by "sandkeep events verify --file". A filtered export, CSV and OCSF cannot.
The last line of NDJSON is the signed end: a file without it is not complete. --after-seq begins after an entry.`;

export function exportCommand(): Command {
  const command = databaseCommand('export')
    .description(
      'export audit events in the order of the log, as NDJSON, CSV or OCSF; the export is an audit event, too',
    )
    .requiredOption('--org <slug>', 'the organization')
    .option('--since <time>', 'events at or after this RFC 3339 date-time')
    .option('--until <time>', 'events at or before it')
    .option('--after-seq <n>', 'begin after this entry of the log', whole, 0)
    .option('--csv', 'print CSV, as --format csv')
    .addOption(
      new Option(
        '--format <format>',
        `the format; ocsf is NDJSON with one event of OCSF ${OCSF_VERSION} on each line (default: ndjson)`,
      ).choices(EXPORT_FORMATS),
    )
    .option('--out <file>', 'write this file, which appears when it is complete (default: standard output)')
    .option('--force', 'replace the file');
  for (const [flag, what] of [
    ['--type <type>', 'event type'],
    ['--category <category>', 'category'],
    ['--actor-kind <kind>', 'kind of actor'],
    ['--actor-id <id>', 'actor'],
    ['--resource <id>', 'resource'],
  ] as const) {
    command.option(flag, `only of this ${what}, or with ! in front of others; may be repeated`, collect);
  }
  return command.addHelpText('after', HELP).action(async (options: ExportOptions) => {
    const { out, force = false, org, csv, afterSeq } = options;
    if (csv && options.format !== undefined) throw new ExplainedError('choose one of --csv and --format');
    if (out !== undefined && !force) refuseExisting(out);
    const { entries, upTo } = await withDatabase(options, 'events export', async (pool) => {
      const orgId = await namedOrg(pool, org);
      const asked = { orgId, actor: operator('events export'), afterSeq, query: queryOf(options) };
      const format = options.format ?? (csv ? 'csv' : 'ndjson');
      const target = out === undefined ? toStandardOutput() : await toFile(out, force);
      try {
        return await inTransaction(
          pool,
          async (tx) => {
            await tx.query('set transaction isolation level repeatable read, read only');
            await lockPartitions(tx);
            const begun = await startExport(pool, tx, { ...asked, format }, now()).catch(explained);
            const entries = await withProgress(begun, async (onEntries) => {
              for await (const text of exportText(tx, begun, onEntries)) await target.write(text);
            });
            await target.finish();
            return { entries, upTo: begun.upToSeq };
          },
          { unhurried: true },
        );
      } catch (error) {
        await target.discard();
        throw error;
      }
    });
    const summary = `${counted(entries, 'event')}; the next export begins with --after-seq ${upTo}`;
    if (out === undefined) process.stderr.write(`${summary}\n`);
    else print(options, { file: out, entries, up_to_seq: upTo }, summary);
  });
}

function queryOf({ since, until, type, category, actorKind, actorId, resource }: ExportOptions): FilterQuery {
  const all = {
    since,
    until,
    event_type: type,
    category,
    actor_kind: actorKind,
    actor_id: actorId,
    resource_id: resource,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

interface Target {
  write(text: string): Promise<void>;
  finish(): Promise<void>;
  discard(): Promise<void>;
}

/** Waits for a slow reader. */
function toStandardOutput(): Target {
  const nothing = () => Promise.resolve();
  return {
    async write(text) {
      if (!process.stdout.write(text)) await once(process.stdout, 'drain');
    },
    finish: nothing,
    discard: nothing,
  };
}

async function toFile(path: string, replace: boolean): Promise<Target> {
  const unwritable = (cause: unknown) => {
    throw new ExplainedError(`cannot write ${path}: ${(cause as Error).message}`, { cause });
  };
  const draft = await FileDraft.open(path).catch(unwritable);
  return {
    write: (text) => draft.handle.writeFile(text).catch(unwritable),
    finish: () => draft.publish({ replace }).catch(unwritable),
    discard: () => draft.discard(),
  };
}

function refuseExisting(path: string): void {
  if (existsSync(path)) throw new ExplainedError(`${path} already exists: --force replaces it`);
}

/** Shows a progress bar on a terminal. Returns the number of entries. */
async function withProgress(
  { afterSeq, upToSeq }: StartedExport,
  work: (onEntries: (seq: number, count: number) => void) => Promise<void>,
): Promise<number> {
  let entries = 0;
  const bar = process.stderr.isTTY
    ? new SingleBar({
        format: 'exporting [{bar}] {percentage}%  {entries} events',
        stream: process.stderr,
        hideCursor: true,
      })
    : undefined;
  bar?.start(upToSeq - afterSeq, 0, { entries });
  try {
    await work((seq, count) => {
      entries += count;
      bar?.update(seq - afterSeq, { entries });
    });
  } finally {
    bar?.stop();
  }
  return entries;
}

function whole(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new ExplainedError('--after-seq must be a whole number');
  return Number(text);
}

function collect(value: string, before: string[] = []): string[] {
  return [...before, value];
}
