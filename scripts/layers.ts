/**
 * Checks the order of the folders of `src`, types included: a file imports only from its own folder and from folders below it.
 * ARCHITECTURE.md shows the same list. Lint refuses cycles between files (`import/no-cycle`).
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';

/** From the lowest to the highest, with the contents. The longest name decides: `sandboxes/spec` is not part of `sandboxes`. */
const LAYERS = {
  lib: 'Code without domain words: time, cursors, loops, queues, the log.',
  telemetry:
    'Traces and logs by OTLP: sampling, bounded queues, exporters. It is loaded only where it is configured.',
  db: 'The pool, transactions, migrations, notifications; `embedded/` runs PostgreSQL as a child process, `external/` finds the primary.',
  http: 'The server, errors, schemas, validation, OpenAPI, server-sent events. It knows no organization.',
  disk: 'The room on the disks of the service: the reserve, the ballast.',
  prices: 'The price book, and exact arithmetic with it.',
  outbound: 'HTTP requests to addresses that callers chose, behind an address check.',
  'sandboxes/spec': 'The wire shapes of a sandbox and its specification.',
  'audit/events': 'The catalogue of audit events, and the function that records one in a transaction.',
  'audit/log': 'The append-only log of each organization: sealing, links, signatures, signing keys.',
  'audit/ocsf': 'Audit events as OCSF, for security tools.',
  'audit/verify': 'The verification of the log, from the store or from an export.',
  'audit/retention': 'The deletion of old events without a break in the log.',
  'volumes/storage': 'The data of volumes on disk, reached without following links.',
  runtimes: 'The runtime interface, and the runtimes `docker/`, `kubernetes/` and `simulated/`.',
  images: 'The images to which organizations have proved access.',
  secrets: 'Encryption of stored secrets under keys that can be rotated.',
  config: 'Every option, declared once: flags, environment variables, configuration file, defaults.',
  'settings.ts': 'The settings of the service and their defaults.',
  'context.ts': 'The dependencies that operations receive as an argument.',
  access: 'Admission of a request: API keys, scopes, networks, rate limits, revocation, the caller.',
  idempotency:
    'The transaction of every write that a caller requests, executed once for each idempotency key.',
  'audit/list': 'Audit events for callers: filters, lists, the live stream.',
  'audit/export': 'The export of the audit trail.',
  audit: 'The routes of the audit trail.',
  runs: 'The rows of runs.',
  usage: 'Metering: usage by sandbox, label and volume, and the monthly summary.',
  quotas: 'Limits: `reserve` checks them in the transaction that uses them up.',
  volumes: 'Volumes and their files: create, update, delete, restore, purge, sample sizes.',
  orgs: 'Organizations.',
  members: 'Members of organizations.',
  keys: 'Management of API keys: create, rotate, revoke, list.',
  console: 'The server side of the web console: sign-in, sessions, static files.',
  webhooks: 'Delivery of audit events to the addresses of organizations.',
  workers: 'Workers and the lease on each engine.',
  sandboxes:
    'The lifecycle: one file for each operation; `placement/` assigns workers, `reconcile/` drives the runtime, `logs/` serves logs.',
  import: 'History from elsewhere: it writes every table, bypassing the operations.',
  backup:
    'Backups: one archive of the database, the keys and the volumes; restore, verification, moves to another database.',
  metrics: 'Metrics for Prometheus: requests, runs, the state in the database, the process.',
  'app.ts': 'Every route of the HTTP API.',
  'worker.ts': 'Every background loop.',
  service: 'The start and the stop of `sandkeep serve`.',
  cli: 'One file for each command.',
  'main.ts': 'The entry point, and the only reader of the environment.',
} as const;
const ORDER = Object.keys(LAYERS);

const BEGIN = '<!-- made from scripts/layers.ts by "npm run generate" -->';
const END = '<!-- end of the layers -->';

/** Replaces the table of folders in ARCHITECTURE.md. */
export function withLayers(page: string): string {
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`ARCHITECTURE.md lacks the marks ${BEGIN} and ${END}`);
  const rows = Object.entries(LAYERS).map(([folder, holds]) => {
    const shown = folder.endsWith('.ts') ? folder : `${folder}/`;
    return `| \`${shown}\` | ${holds} |`;
  });
  const table = ['| in `src` | contents |', '| --- | --- |', ...rows.toReversed()];
  return `${before}${BEGIN}\n\n${table.join('\n')}\n\n${END}${after}`;
}

const SRC = join(PACKAGE_ROOT, 'src');

/** Each import of a higher folder, and each file that belongs to no folder of the list, as a sentence. */
export function layerFaults(): string[] {
  const paths = readdirSync(SRC, { recursive: true, encoding: 'utf8' });
  return paths
    .filter((path) => path.endsWith('.ts'))
    .toSorted()
    .flatMap((file) => {
      const from = layerOf(file);
      if (from === undefined) return [`src/${file} is in no folder of scripts/layers.ts`];
      return importsOf(file)
        .filter((target) => ORDER.indexOf(layerOf(target) ?? '') > ORDER.indexOf(from))
        .map((target) => `src/${file} imports src/${target}: ${layerOf(target)} is above ${from}`);
    });
}

function layerOf(file: string): string | undefined {
  return ORDER.filter((layer) => file === layer || file.startsWith(`${layer}/`)).reduce<string | undefined>(
    (longest, layer) => (longest === undefined || layer.length > longest.length ? layer : longest),
    undefined,
  );
}

/** The files of `src` that a file imports, by their paths below `src`. */
function importsOf(file: string): string[] {
  const text = readFileSync(join(SRC, file), 'utf8');
  return [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)\.js'/g)].map(([, target]) =>
    relative(SRC, join(SRC, dirname(file), `${target}.ts`)),
  );
}
