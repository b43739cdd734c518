import { chmodSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { registerKey } from '../../src/audit/log/activate-keys.js';
import { now } from '../../src/lib/instant.js';
import { Keyring } from '../../src/secrets/keyring.js';
import { NO_DOCKER, run, urlOf, type RunOptions } from '../support/cli.js';
import { cleanUp, launch, makeFolder, ready, stop } from '../support/processes.js';
import { startTestService, type TestService } from '../support/service.js';

function keysOf(args: readonly string[], options?: RunOptions) {
  return findingOf('keys', args, options);
}

async function findingOf(wanted: string, args: readonly string[], options?: RunOptions) {
  const { code, out } = await run(['doctor', '--json', ...args, ...NO_DOCKER], options);
  const { check: _, ...finding } = JSON.parse(out).find(({ check }: any) => check === wanted);
  return { code, ...finding };
}

describe('doctor beside an external database', () => {
  let service: TestService;
  let folder: string;
  let where: string[];
  beforeAll(async () => {
    service = await startTestService({ worker: false });
    const client = await service.newOrg();
    await client.post('/v1/webhooks', { url: 'https://example.com/' });
    await registerKey(service.ctx.pool, service.ctx.eventKeys(), now());
    folder = mkdtempSync(join(tmpdir(), 'sandkeep-doctor-'));
    where = ['--database-url', urlOf(service.database), '--data-dir', service.directory];
  });
  afterAll(async () => {
    rmSync(folder, { recursive: true });
    await service.close();
  });

  const fileOf = (name: string) => join(service.directory, name);

  test('warns that a dump of the database alone does not contain the key files, and names the backup that does', async () => {
    const files = `${fileOf('secret-keys')} and ${fileOf('event-keys')}`;
    expect(await keysOf(where)).toEqual({
      code: 0,
      state: 'missing',
      found: `the keys that the database names are here; a dump of the database alone does not contain ${files}, "sandkeep backup" does`,
      remedy: 'sandkeep backup <path>',
    });
  });

  test('is content with keys of the environment', async () => {
    const env = {
      SANDKEEP_SECRET_KEYS: readFileSync(fileOf('secret-keys'), 'utf8'),
      SANDKEEP_EVENT_KEYS: readFileSync(fileOf('event-keys'), 'utf8'),
    };
    expect(await keysOf(where, { env })).toEqual({
      code: 0,
      state: 'ok',
      found: 'the keys that the database names are here; given by the environment',
    });
  });

  test('names a key of the database that is not on this machine, and creates none', async () => {
    const lost = join(folder, 'lost');
    const none = await keysOf([...where, '--secret-keys-file', lost]);
    const sealing = Keyring.parse(readFileSync(fileOf('secret-keys'), 'utf8'), 'test').currentId;
    expect(none).toEqual({
      code: 1,
      state: 'broken',
      found: `the key ${sealing}, which seals secrets, is not in ${lost}`,
      remedy:
        'put the file back from a backup that "sandkeep backup" made (docs/backups.md#a-missing-key-file)',
    });
    writeFileSync(lost, Keyring.makeKey());
    chmodSync(lost, 0o600);
    expect((await keysOf([...where, '--secret-keys-file', lost])).found).toBe(none.found);
    const events = await keysOf([...where, '--event-keys-file', join(folder, 'no-events')]);
    expect(events).toMatchObject({
      code: 1,
      found: expect.stringMatching(
        /^the key [0-9a-f]{16}, which signs the event log, is not in .*no-events$/,
      ),
    });
  });
});

test('doctor reads runtime and keys of a data directory from its database while a service runs, else looks only for key files', async () => {
  const folder = makeFolder();
  try {
    const dataDir = join(folder, 'data');
    const where = ['--data-dir', dataDir];
    expect((await keysOf(where)).found).toBe('none created yet');
    const args = ['serve', '--json', '--port', '0', '--runtime', 'simulated', ...where];
    const service = await ready(launch(args), dataDir);
    expect(await keysOf(where)).toEqual({
      code: 0,
      state: 'ok',
      found: 'the keys that the database names are here; "sandkeep backup" contains them',
    });
    expect((await findingOf('runtime', where)).found).toBe('simulated, as at the last start of the service');
    const file = join(dataDir, 'event-keys');
    renameSync(file, `${file}.away`);
    expect(await keysOf(where)).toMatchObject({
      code: 1,
      found: expect.stringMatching(/^the key [0-9a-f]{16}, which signs the event log, is not in /),
    });
    expect(await stop(service)).toBe(0);
    expect((await findingOf('runtime', where)).found).toBe('not known, as no database runs');
    expect(await keysOf(where)).toMatchObject({
      code: 1,
      found: expect.stringMatching(/^the keys that sign the event log are not in .*\/event-keys$/),
    });
    renameSync(`${file}.away`, file);
    expect(await keysOf(where)).toMatchObject({
      code: 0,
      state: 'ok',
      found: expect.stringMatching(
        /^not compared with the database, which does not run; "sandkeep backup" contains/,
      ),
    });
  } finally {
    await cleanUp(folder);
  }
});
