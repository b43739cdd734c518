import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { connectionConfig } from '../../src/db/pool.js';
import { expectRefused, PROGRAM, run, start, urlOf } from '../support/cli.js';
import { withDatabase } from '../support/database.js';

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-installation-'));
  // The embedded database may run as another user.
  chmodSync(folder, 0o755);
  writeFileSync(join(folder, 'empty.ndjson'), '');
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const ID = '0190e5a0-0000-7000-8000-000000000000';
/** Every command that needs an installation. */
const COMMANDS = [
  ['org', 'list'],
  ['org', 'create', '--name', 'x', '--slug', 'x'],
  ['key', 'list'],
  ['key', 'create', '--org', 'x', '--name', 'x'],
  ['key', 'rotate', ID],
  ['key', 'revoke', ID],
  ['quota', 'show', '--org', 'x'],
  ['quota', 'set', '--org', 'x', 'max_sandboxes=1'],
  ['usage', '--org', 'x'],
  ['worker', 'list'],
  ['worker', 'remove', ID],
  ['secrets', 'rotate'],
  ['secrets', 'forget'],
  ['member', 'list', '--org', 'x'],
  ['events', 'export', '--org', 'x'],
  ['events', 'verify'],
  ['events', 'retention', '--org', 'x', '--months', '3'],
  ['events', 'command-lines', '--org', 'x', '--record', 'on'],
  ['events', 'key'],
  ['webhook', 'create', 'https://example.com/', '--org', 'x'],
  ['webhook', 'list', '--org', 'x'],
  ['import', 'empty.ndjson'],
  ['uninstall', '--yes'],
];

describe('without an installation, a command fails and creates nothing', () => {
  test.each(COMMANDS.map((command) => [command]))('in a missing directory: %j', async (command) => {
    const dataDir = join(folder, 'missing');
    const refused = await run([...command, '--data-dir', dataDir], { cwd: folder });
    expectRefused(
      refused,
      `no installation in ${dataDir}; run "sandkeep serve --data-dir ${dataDir}" to create one`,
    );
    expect(existsSync(dataDir)).toBe(false);
  });

  test('in an empty directory, also with a relative path', async () => {
    const dataDir = join(folder, 'empty');
    mkdirSync(dataDir);
    for (const path of [dataDir, 'empty', './empty/']) {
      const refused = await run(['org', 'list', '--data-dir', path], { cwd: folder });
      expectRefused(refused, `no installation in ${dataDir}; run "sandkeep serve --data-dir ${dataDir}"`);
    }
    expect(readdirSync(dataDir)).toEqual([]);
  });

  test('in an empty external database', async () => {
    const name = `sandkeep_uninstalled_${process.pid}`;
    const admin = new pg.Client(connectionConfig(withDatabase(inject('server'), 'template1')));
    await admin.connect();
    await admin.query(`create database ${name} template template0`);
    try {
      const address = withDatabase(inject('server'), name);
      const refused = await run(['org', 'list'], { env: { DATABASE_URL: urlOf(address) } });
      expectRefused(
        refused,
        'no installation in the database of --database-url; run "sandkeep migrate" with the same URL',
      );
      const client = new pg.Client(connectionConfig(address));
      await client.connect();
      const { rows } = await client.query("select from pg_class where relnamespace = 'public'::regnamespace");
      await client.end();
      expect(rows).toEqual([]);
    } finally {
      await admin.query(`drop database ${name} with (force)`);
      await admin.end();
    }
  });

  test('a command beside a service in its first start waits for its database', async () => {
    const dataDir = join(folder, 'starting');
    const options = ['--json', '--port', '0', '--runtime', 'simulated', '--data-dir', dataDir];
    const serving = start([...PROGRAM, 'serve', ...options]);
    await expect.poll(() => existsSync(join(dataDir, 'owner.json'))).toBe(true);
    const { code, err } = await run(['org', 'list', '--json', '--data-dir', dataDir]);
    serving.child.kill('SIGTERM');
    await serving.ended;
    expect({ code, err }).toEqual({ code: 0, err: '' });
  });
});
