/**
 * Checks the order of the folders of `src`, types included: a file imports only from its own folder and from folders
 * below it. Engines import nothing of each other. ARCHITECTURE.md shows the same folders by theme. Lint refuses cycles
 * between files (`import/no-cycle`).
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';

/**
 * The subjects of the folders, for readers. A theme has folders at several heights: the order of `LAYERS` decides what
 * may be imported.
 */
const THEMES = [
  'program',
  'operation',
  'sandboxes',
  'organizations',
  'storage',
  'record and money',
  'requests',
  'engines',
  'ground',
] as const;

interface Folder {
  theme: (typeof THEMES)[number];
  holds: string;
}

/** From the lowest to the highest. The longest name decides: `audit/log` is not part of `audit`. */
const LAYERS: Record<string, Folder> = {
  lib: {
    theme: 'ground',
    holds: 'Code without domain words: time, cursors, loops, queues, the log.',
  },
  fairness: {
    theme: 'ground',
    holds: 'Slots, shares and rates among organizations. Its README lists every use.',
  },
  options: {
    theme: 'operation',
    holds: 'The declaration of an option: its type, its texts, its default.',
  },
  telemetry: {
    theme: 'operation',
    holds: 'Traces and logs by OTLP. It is loaded only where it is configured.',
  },
  db: {
    theme: 'ground',
    holds: 'Pool, transactions, migrations, notifications, locks, embedded PostgreSQL.',
  },
  http: {
    theme: 'ground',
    holds: 'The server, errors, schemas, OpenAPI. It knows no organization.',
  },
  disk: {
    theme: 'storage',
    holds: 'The room on the disks of the service: the reserve, the ballast.',
  },
  prices: {
    theme: 'record and money',
    holds: 'The price book, and exact arithmetic with it.',
  },
  outbound: {
    theme: 'ground',
    holds: 'HTTP requests to addresses that callers chose, behind an address check.',
  },
  'network-policy': {
    theme: 'sandboxes',
    holds: 'The meaning of a network policy, without an engine.',
  },
  gateway: {
    theme: 'engines',
    holds: 'The program between sandboxes and the network: names, rules by domain, secrets, TLS.',
  },
  spec: {
    theme: 'sandboxes',
    holds: 'The fields of a specification: schema, default, check, requirement.',
  },
  'audit/events': {
    theme: 'record and money',
    holds: 'The catalogue of audit events; `recordEvent`.',
  },
  'audit/log': {
    theme: 'record and money',
    holds: 'The append-only log: sealing, links, signatures, signing keys.',
  },
  'audit/ocsf': {
    theme: 'record and money',
    holds: 'Audit events as OCSF, for security tools.',
  },
  'audit/verify': {
    theme: 'record and money',
    holds: 'The verification of the log, from the store or from an export.',
  },
  'audit/retention': {
    theme: 'record and money',
    holds: 'The deletion of old events without a break in the log.',
  },
  'volumes/storage': {
    theme: 'storage',
    holds: 'The data of volumes on disk, reached without following links.',
  },
  guest: {
    theme: 'engines',
    holds: 'The way into a running sandbox: the protocol of its agent, commands, files.',
  },
  registry: {
    theme: 'engines',
    holds: 'Registries of images: manifests, checked layers, pulls, access.',
  },
  engine: {
    theme: 'engines',
    holds: 'The interface of an engine, and code that engines share.',
  },
  'machine-network': {
    theme: 'engines',
    holds: 'Networks of sandboxes on Linux: rules, bandwidth, counters, the gateway.',
  },
  'engines/simulated': {
    theme: 'engines',
    holds: 'The simulated engine.',
  },
  'engines/docker': {
    theme: 'engines',
    holds: 'The Docker engine.',
  },
  'engines/microvm': {
    theme: 'engines',
    holds: 'Virtual machines of this machine as the engine: a kernel for each sandbox.',
  },
  'engines/kubernetes': {
    theme: 'engines',
    holds: 'A Kubernetes cluster as the engine.',
  },
  engines: {
    theme: 'engines',
    holds: 'The register of the engines, and the choice of one.',
  },
  secrets: {
    theme: 'storage',
    holds: 'Encryption of stored secrets under keys that can be rotated.',
  },
  config: {
    theme: 'operation',
    holds: 'Every option, declared once; the configuration file.',
  },
  'settings.ts': {
    theme: 'requests',
    holds: 'The settings of the service and their defaults.',
  },
  'context.ts': {
    theme: 'requests',
    holds: 'The dependencies that operations receive as an argument.',
  },
  access: {
    theme: 'requests',
    holds: 'The caller of a request: keys, scopes, networks, rates, revocation.',
  },
  idempotency: {
    theme: 'requests',
    holds: 'The transaction of every write of a caller, once for each key.',
  },
  'audit/list': {
    theme: 'record and money',
    holds: 'Audit events for callers: filters, lists, the live stream.',
  },
  'audit/export': {
    theme: 'record and money',
    holds: 'The export of the audit trail.',
  },
  audit: {
    theme: 'record and money',
    holds: 'The routes of the audit trail.',
  },
  runs: {
    theme: 'record and money',
    holds: 'The rows of runs.',
  },
  usage: {
    theme: 'record and money',
    holds: 'Metering: usage by sandbox, label and volume, and the monthly summary.',
  },
  budgets: {
    theme: 'record and money',
    holds: 'Budgets of a month: their use and forecast, the check of starts, the events of thresholds.',
  },
  quotas: {
    theme: 'record and money',
    holds: 'Limits: `reserve` checks them in the transaction that uses them up.',
  },
  'registry-credentials': {
    theme: 'organizations',
    holds: 'Stored credentials of registries, by patterns of images.',
  },
  volumes: {
    theme: 'storage',
    holds: 'Volumes and their files, purges, samples of sizes.',
  },
  orgs: {
    theme: 'organizations',
    holds: 'Organizations.',
  },
  members: {
    theme: 'organizations',
    holds: 'Members of organizations.',
  },
  people: {
    theme: 'organizations',
    holds: 'People: accounts of an OpenID provider, its tokens, memberships, passkeys.',
  },
  keys: {
    theme: 'organizations',
    holds: 'Management of API keys: create, rotate, revoke, list.',
  },
  console: {
    theme: 'organizations',
    holds: 'The server side of the web console: sign-in, sessions, static files.',
  },
  webhooks: {
    theme: 'organizations',
    holds: 'Delivery of audit events to the addresses of organizations.',
  },
  workers: {
    theme: 'sandboxes',
    holds: 'Workers and the lease on each engine.',
  },
  sandboxes: {
    theme: 'sandboxes',
    holds: 'Admission, lifecycle (a file an operation), reads, placement, reconciling.',
  },
  snapshots: {
    theme: 'sandboxes',
    holds: 'Snapshots of sandboxes: captures, their usage, deletion.',
  },
  templates: {
    theme: 'sandboxes',
    holds: 'Templates: builds from a Dockerfile, their logs, cached steps, deletion.',
  },
  previews: {
    theme: 'sandboxes',
    holds: 'Ports of sandboxes as origins of their own: listener, proxy, grants.',
  },
  mcp: {
    theme: 'sandboxes',
    holds: 'Tools for agents by the Model Context Protocol: clients of the HTTP API.',
  },
  import: {
    theme: 'operation',
    holds: 'History from elsewhere: it writes every table, bypassing the operations.',
  },
  backup: {
    theme: 'operation',
    holds: 'Backups, restores, moves to another database.',
  },
  metrics: {
    theme: 'operation',
    holds: 'Metrics for Prometheus.',
  },
  'app.ts': {
    theme: 'program',
    holds: 'Every route of the HTTP API.',
  },
  'worker.ts': {
    theme: 'program',
    holds: 'Every background loop.',
  },
  service: {
    theme: 'program',
    holds: 'The start and the stop of `sandkeep serve`.',
  },
  cli: {
    theme: 'program',
    holds: 'One file for each command.',
  },
  'main.ts': {
    theme: 'program',
    holds: 'The entry point, and the only reader of the environment.',
  },
};
const ORDER = Object.keys(LAYERS);

const BEGIN = '<!-- made from scripts/layers.ts by "npm run generate" -->';
const END = '<!-- end of the layers -->';

/** Replaces the table of folders in ARCHITECTURE.md. */
export function withLayers(page: string): string {
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`ARCHITECTURE.md lacks the marks ${BEGIN} and ${END}`);
  const rows = THEMES.flatMap((theme) =>
    foldersOf(theme).map((folder, index) => {
      const shown = folder.endsWith('.ts') ? folder : `${folder}/`;
      return `| ${index === 0 ? `**${theme}**` : ''} | \`${shown}\` | ${LAYERS[folder]!.holds} |`;
    }),
  );
  const table = ['| theme | in `src` | contents |', '| --- | --- | --- |', ...rows];
  return `${before}${BEGIN}\n\n${table.join('\n')}\n\n${END}${after}`;
}

/** The folders of a theme, from the highest to the lowest. */
function foldersOf(theme: Folder['theme']): string[] {
  return ORDER.filter((folder) => LAYERS[folder]!.theme === theme).toReversed();
}

/** Each theme with its folders from the highest to the lowest, and the other themes that they import. */
export function drawThemes(): string[] {
  const imported = new Map(THEMES.map((theme) => [theme, new Set<string>()]));
  for (const file of sourceFiles()) {
    const { theme } = LAYERS[layerOf(file) ?? ''] ?? {};
    if (theme === undefined) continue;
    for (const target of importsOf(file))
      imported.get(theme)!.add(LAYERS[layerOf(target) ?? '']?.theme ?? '');
  }
  return THEMES.flatMap((theme) => {
    const others = THEMES.filter((other) => other !== theme && imported.get(theme)!.has(other));
    const name = theme.padEnd(Math.max(...THEMES.map(({ length }) => length)));
    const arrow = others.length === THEMES.length - 1 ? 'all' : others.join(', ');
    return [
      `${name}  ${foldersOf(theme).join(' > ')}`,
      ...(arrow === '' ? [] : [`${' '.repeat(name.length)}  ──► ${arrow}`]),
    ];
  });
}

const SRC = join(PACKAGE_ROOT, 'src');

/** Each import of a higher folder, and each file that belongs to no folder of the list, as a sentence. */
export function layerFaults(): string[] {
  return sourceFiles().flatMap((file) => {
    const from = layerOf(file);
    // Without a row of its own a new engine would be a part of the register, which may import every engine.
    const isUnlisted = from === undefined || (from === 'engines' && file.split('/').length > 2);
    if (isUnlisted) return [`src/${file} is in no folder of scripts/layers.ts`];
    return importsOf(file)
      .filter((target) => isForbidden(from, layerOf(target) ?? ''))
      .map((target) => `src/${file} imports src/${target}: ${from} may not import ${layerOf(target)}`);
  });
}

function isForbidden(from: string, target: string): boolean {
  const areEngines = from.startsWith('engines/') && target.startsWith('engines/');
  return ORDER.indexOf(target) > ORDER.indexOf(from) || (areEngines && from !== target);
}

function sourceFiles(): string[] {
  const paths = readdirSync(SRC, { recursive: true, encoding: 'utf8' });
  return paths.filter((path) => path.endsWith('.ts')).toSorted();
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
