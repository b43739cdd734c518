/**
 * Writes the generated files that are committed: openapi.json, schema.sql, the header of the guest, and pages of docs.
 * With --check it only compares, and fails when one is not up to date.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { format, resolveConfig } from 'prettier';
import { buildApp } from '../src/app.js';
import { ActiveEventKeys } from '../src/audit/events/active-keys.js';
import { SeenHeads } from '../src/audit/log/seen-heads.js';
import { openEventKeys } from '../src/audit/log/signing-key.js';
import { readCatalogue } from '../src/db/catalogue.js';
import { migrate } from '../src/db/migrate.js';
import { openForServer } from '../src/db/open.js';
import { connectionConfig, openPool } from '../src/db/pool.js';
import { inTransaction } from '../src/db/transaction.js';
import { makeLog } from '../src/lib/log.js';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';
import { SimulatedRuntime } from '../src/engines/simulated/runtime.js';
import { Keyring } from '../src/secrets/keyring.js';
import { UNCHECKED_DISKS } from '../src/disk/disk-reserve.js';
import { VolumeStore } from '../src/volumes/storage/store.js';
import { auditEventsPage } from './audit-events.js';
import { clientCommandsPage } from './client-tables.js';
import { consoleTypes, type OpenApi } from './console-types.js';
import { createFields } from './create-fields.js';
import { dumpSchema } from './dump-schema.js';
import { guestHeader } from './guest-header.js';
import { helmChart } from './helm-chart.js';
import { withLayers } from './layers.js';
import { redraw } from './lifecycle-diagram.js';
import { limitsPage } from './limits-page.js';
import { withTools } from './mcp-tools.js';
import { withOptionTable } from './option-table.js';
import { withRoles } from './role-table.js';
import type { ServiceContext } from '../src/context.js';
import { makeContext } from '../src/service/make-context.js';

const directory = mkdtempSync(join(tmpdir(), 'sandkeep-generate-'));
const database = await openForServer({
  databaseUrl: undefined,
  dataDir: directory,
  command: 'generate',
  onCrash: () => undefined,
});
await migrate(database.address);

const client = new pg.Client(connectionConfig(database.address));
await client.connect();
const schema = await dumpSchema(client);
await client.end();

const eventKeys = openEventKeys({ file: join(directory, 'event-keys') });
const activeKeys = new ActiveEventKeys(eventKeys);
const pool = openPool(database.address, () => undefined, activeKeys.marker);
const catalogue = `${JSON.stringify(await inTransaction(pool, readCatalogue), null, 2)}\n`;
// No request is served.
const unserved = { of: () => ({ pool, reads: pool }), watched: pool, close: () => Promise.resolve() };
const runtime = new SimulatedRuntime(directory);
const ctx = makeContext<ServiceContext>(Buffer.alloc(32), {
  pool,
  requests: unserved,
  runtime,
  volumes: new VolumeStore(directory),
  disk: UNCHECKED_DISKS,
  eventKeys,
  activeKeys,
  seenHeads: new SeenHeads(join(directory, 'event-heads')),
  keyring: () => Keyring.parse(Keyring.makeKey(), 'nowhere'),
  changes: { live: false, subscribe: () => () => undefined, close: () => Promise.resolve() },
  log: makeLog('silent', { write: () => undefined }),
  stopping: new AbortController().signal,
});
const app = await buildApp(ctx);
const openapi = `${JSON.stringify(app.swagger(), null, 2)}\n`;
await app.close();
await pool.end();
await database.close();
rmSync(directory, { recursive: true, force: true });

const LIFECYCLE = 'docs/lifecycle.md';
const AUDIT_EVENTS = 'docs/audit-events.md';
const CLIENT_COMMANDS = 'docs/client-commands.md';
const CONFIGURATION = 'docs/configuration.md';
const ARCHITECTURE = 'ARCHITECTURE.md';
const LIMITS = 'docs/limits.md';
const MCP = 'docs/mcp.md';
const ROLES = 'docs/roles.md';
const CREATE_FIELDS = 'console/src/sandboxes/create-fields.json';
const CONSOLE_TYPES = 'console/src/lib/api-types.ts';
const markdown = { ...(await resolveConfig(join(PACKAGE_ROOT, LIFECYCLE))), parser: 'markdown' };
const lifecycle = await format(redraw(readFileSync(join(PACKAGE_ROOT, LIFECYCLE), 'utf8')), markdown);
const auditEvents = await format(auditEventsPage(), markdown);
const clientCommands = await format(clientCommandsPage(), markdown);
const configuration = await format(
  withOptionTable(readFileSync(join(PACKAGE_ROOT, CONFIGURATION), 'utf8')),
  markdown,
);
const architecture = await format(
  withLayers(readFileSync(join(PACKAGE_ROOT, ARCHITECTURE), 'utf8')),
  markdown,
);

const limits = await format(limitsPage(), markdown);
const mcp = await format(withTools(readFileSync(join(PACKAGE_ROOT, MCP), 'utf8')), markdown);
const roles = await format(
  withRoles(readFileSync(join(PACKAGE_ROOT, ROLES), 'utf8'), JSON.parse(openapi)),
  markdown,
);
const fields = await format(createFields(JSON.parse(openapi) as OpenApi), {
  ...(await resolveConfig(join(PACKAGE_ROOT, CREATE_FIELDS))),
  parser: 'json',
});
const types = await format(consoleTypes(JSON.parse(openapi) as OpenApi), {
  ...(await resolveConfig(join(PACKAGE_ROOT, CONSOLE_TYPES))),
  parser: 'typescript',
});

/** Prettier does not know the forms of the others. */
const PARSERS: Record<string, string> = { md: 'markdown', json: 'json' };
const chart: [string, string][] = [];
for (const [name, text] of helmChart()) {
  const path = join(PACKAGE_ROOT, name);
  const parser = name.includes('/files/') ? undefined : PARSERS[name.split('.').at(-1)!];
  chart.push([name, parser ? await format(text, { ...(await resolveConfig(path)), parser }) : text]);
}

let stale = false;
for (const [name, text] of [
  ['openapi.json', openapi],
  ['schema.sql', schema],
  ['catalogue.json', catalogue],
  [LIFECYCLE, lifecycle],
  [AUDIT_EVENTS, auditEvents],
  [CLIENT_COMMANDS, clientCommands],
  [CONFIGURATION, configuration],
  [ARCHITECTURE, architecture],
  [LIMITS, limits],
  [MCP, mcp],
  [ROLES, roles],
  [CONSOLE_TYPES, types],
  [CREATE_FIELDS, fields],
  ['guest/protocol.h', guestHeader()],
  ...chart,
] as const) {
  const path = join(PACKAGE_ROOT, name);
  if (existsSync(path) && readFileSync(path, 'utf8') === text) continue;
  if (process.argv.includes('--check')) {
    console.error(`${name} is not up to date: run "npm run generate" and commit it`);
    stale = true;
  } else {
    writeFileSync(path, text);
    console.log(`wrote ${name}`);
  }
}
process.exitCode = stale ? 1 : 0;
