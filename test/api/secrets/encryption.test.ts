import fc from 'fast-check';
import { chmodSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { setSecretKey } from '../../../src/db/instance-queries.js';
import { inTransaction } from '../../../src/db/transaction.js';
import type { Run } from '../../../src/engine/runtime.js';
import type { RunSecrets } from '../../../src/spec/run-spec.js';
import { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import { addKey, dropOldKeys, openKeyring } from '../../../src/secrets/key-file.js';
import { Keyring } from '../../../src/secrets/keyring.js';
import {
  forgetNetworkAuthority,
  openNetworkAuthority,
  resealNetworkAuthority,
  rotateNetworkAuthority,
  showNetworkAuthority,
} from '../../../src/secrets/network-authority.js';
import { getSecrets, sealingKeys } from '../../../src/secrets/queries.js';
import { checkKeys, forgetAll, openSecrets, resealAll } from '../../../src/secrets/secrets.js';
import { readSimulated } from '../../crash/support/engine-journal.js';
import { anyCharacter } from '../../support/any-character.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { untilStatus } from '../../support/polling.js';

const ring = (...keys: string[]) => Keyring.parse(keys.join('\n'), 'the test');

describe('the network authority', () => {
  let service: TestService;
  beforeAll(async () => void (service = await startTestService({ worker: false })));
  afterAll(() => service.close());

  test('is made once, is sealed again under a new key, and is replaced by a command', async () => {
    const { pool, keyring } = service.ctx;
    const opened = await Promise.all([1, 2, 3].map(() => openNetworkAuthority(pool, keyring)));
    const [first] = opened;
    expect(opened).toEqual([first, first, first]);
    const stored = await pool.query<{ row: string }>('select to_jsonb(i)::text as row from instance i');
    expect(stored.rows[0]!.row).not.toContain('PRIVATE KEY');
    const [older] = await sealingKeys(pool);
    addKey(join(service.directory, 'secret-keys'));
    const reseal = () => inTransaction(pool, (tx) => resealNetworkAuthority(tx, keyring()));
    expect([await reseal(), await reseal()]).toEqual([1, 0]);
    dropOldKeys(join(service.directory, 'secret-keys'));
    expect(await openNetworkAuthority(pool, keyring)).toEqual(first);
    expect(await sealingKeys(pool)).not.toContain(older);
    const next = await rotateNetworkAuthority(pool, keyring);
    expect(next).not.toBe(first!.certificate);
    expect(await showNetworkAuthority(pool, keyring)).toBe(next);
  });

  test('whose key is lost says so, and can be replaced or forgotten', async () => {
    const { pool } = service.ctx;
    const other = ring(Keyring.makeKey());
    await expect(openNetworkAuthority(pool, () => other)).rejects.toThrow(
      'sandkeep network authority rotate',
    );
    const next = await rotateNetworkAuthority(pool, () => other);
    expect((await openNetworkAuthority(pool, () => other)).certificate).toBe(next);
    expect([await forgetNetworkAuthority(pool), await forgetNetworkAuthority(pool)]).toEqual([true, false]);
  });
});

describe('a keyring', () => {
  const [older, newer] = [Keyring.makeKey(), Keyring.makeKey()];

  test('decrypts its own secrets in the same context, under any of its keys', () => {
    fc.assert(
      fc.property(fc.string({ unit: anyCharacter }), fc.string(), fc.string(), (text, about, other) => {
        const sealed = ring(older).seal(text, about);
        expect(ring(older).open(sealed, about)).toBe(text);
        expect(ring(newer, older).open(sealed, about)).toBe(text);
        expect(ring(newer).open(sealed, about)).toBeUndefined();
        if (other !== about) expect(ring(older).open(sealed, other)).toBeUndefined();
        expect(ring(older).seal(text, about).bytes.equals(sealed.bytes)).toBe(false);
      }),
    );
  });

  test('rejects secrets with a changed bit, or cut short', () => {
    const sealed = ring(older).seal('the secret', 'x');
    for (let bit = 0; bit < sealed.bytes.length * 8; bit += 1) {
      const bytes = Buffer.from(sealed.bytes);
      bytes[bit >> 3]! ^= 1 << (bit & 7);
      expect(ring(older).open({ ...sealed, bytes }, 'x')).toBeUndefined();
    }
    for (let length = 0; length < sealed.bytes.length; length += 1) {
      const bytes = sealed.bytes.subarray(0, length);
      expect(ring(older).open({ ...sealed, bytes }, 'x')).toBeUndefined();
    }
  });

  test('is refused with an invalid key, without showing the key', () => {
    for (const text of ['', ' \n', 'short', `${older}x`, `${older} ${older.slice(4)}`, 'ä'.repeat(44)]) {
      let message = '';
      try {
        ring(text);
      } catch (error) {
        message = (error as Error).message;
      }
      expect(message).toContain('the test');
      if (text.trim() !== '') expect(message).not.toContain(text.slice(0, 12));
    }
  });
});

describe('a key file', () => {
  let folder: string;
  beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'sandkeep-keys-'))));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test('is created for its owner only, and read again when a key is added or dropped', () => {
    const file = join(folder, 'made', 'keys');
    const keyring = openKeyring({ file });
    const first = keyring().currentId;
    expect([statSync(file).mode & 0o777, openKeyring({ file })().currentId]).toEqual([0o600, first]);
    const sealed = keyring().seal('text', 'x');
    addKey(file);
    expect(keyring().currentId).not.toBe(first);
    expect(keyring().open(sealed, 'x')).toBe('text');
    dropOldKeys(file);
    expect(keyring().open(sealed, 'x')).toBeUndefined();
    expect(readFileSync(file, 'utf8').trim().split('\n')).toHaveLength(1);
  });

  test('that disappears while in use is not created again, and is used again once restored', () => {
    const file = join(folder, 'goes');
    const keyring = openKeyring({ file });
    const { currentId } = keyring();
    renameSync(file, `${file}.away`);
    expect(() => keyring()).toThrow(`${file} has gone`);
    expect(existsSync(file)).toBe(false);
    renameSync(`${file}.away`, file);
    expect(keyring().currentId).toBe(currentId);
  });

  test('that other users may read is refused', () => {
    const file = join(folder, 'open');
    openKeyring({ file })();
    chmodSync(file, 0o640);
    expect(() => openKeyring({ file })()).toThrow('chmod 600');
  });
});

describe('the secrets of a sandbox', () => {
  let service: TestService;
  let client: Client;
  let given: { run: string; secrets: RunSecrets }[] = [];
  beforeAll(async () => {
    const failStart = ({ runId, secrets }: Run) => void given.push({ run: runId, secrets });
    service = await startTestService({ simulated: { failStart } });
    client = await service.newOrg();
  });
  afterAll(() => service.close());
  afterEach(() => void (given = []));

  const registry = { mode: 'inline', username: 'me', password: 'canary-password' };
  const entry = {
    env_var: 'TOKEN',
    value: 'canary-value',
    placeholder: '$TOKEN',
    allowed_hosts: [{ type: 'any' }],
  };
  const spec = { registry, network: { secrets: { entries: [entry] } } };
  const rowsOf = (id: string) => getSecrets(service.ctx.pool, client.org.id, id);

  test('reach the runtime, credentials for the first run only, and are deleted with the sandbox', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('keeps', spec));
    expect((await rowsOf(body.id)).map(({ name }) => name).toSorted()).toEqual(['env:TOKEN', 'registry']);
    await client.post(`/v1/sandboxes/${body.id}/start`, {}, { wait_for: 'running' });
    await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    await untilStatus(client, body.id, 'stopped');
    await client.post(`/v1/sandboxes/${body.id}/start`, {}, { wait_for: 'running' });
    const values = { TOKEN: 'canary-value' };
    expect(given.map(({ secrets }) => secrets)).toEqual([
      { registry: { username: 'me', password: 'canary-password' }, values },
      { registry: null, values },
    ]);
    await client.delete(`/v1/sandboxes/${body.id}`);
    expect(await rowsOf(body.id)).toEqual([]);
  });

  test('cannot be decrypted for another sandbox: its start fails with the reason', async () => {
    const { body: mine } = await client.post('/v1/sandboxes', smallRequest('mine', spec));
    const { body: theirs } = await client.post('/v1/sandboxes', smallRequest('theirs'));
    await service.ctx.pool.query('update sandbox_secrets set sandbox_id = $2 where sandbox_id = $1', [
      mine.id,
      theirs.id,
    ]);
    const { body } = await client.post(`/v1/sandboxes/${theirs.id}/start`, {}, { wait_for: 'running' });
    expect([body.status, body.last_failure_message]).toEqual([
      'failed',
      expect.stringContaining('a secret of the sandbox does not open'),
    ]);
    expect(given).toEqual([]);
    await service.ctx.pool.query('delete from sandbox_secrets');
  });

  test('are encrypted again under a new key', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('reseals', spec));
    const file = join(service.directory, 'secret-keys');
    addKey(file);
    expect(await resealAll(service.ctx.pool, service.ctx.keyring, operator('test'))).toBe(2);
    expect(await resealAll(service.ctx.pool, service.ctx.keyring, operator('test'))).toBe(0);
    dropOldKeys(file);
    expect(await openSecrets(service.ctx.pool, service.ctx.keyring, client.org.id, body.id)).toEqual({
      registry: { username: 'me', password: 'canary-password' },
      values: { TOKEN: 'canary-value' },
    });
  });

  test('need the keys of their installation: a service with other keys starts only after `secrets forget`', async () => {
    const { pool } = service.ctx;
    const own = ring(Keyring.makeKey());
    const other = ring(Keyring.makeKey());
    await setSecretKey(pool, own.currentId);
    await expect(checkKeys(pool, own, 'a')).resolves.toBeUndefined();
    await expect(checkKeys(pool, other, 'the file b')).rejects.toThrow(/not in the file b.*secrets forget/);
    expect(await forgetAll(pool, other, operator('test'))).toBeGreaterThan(0);
    const forgotten = await pool.query<{ count: number }>(
      "select count(*) from events where event_type = 'secrets_forgotten'",
    );
    expect(forgotten.rows[0]!.count).toBeGreaterThan(0);
    await expect(checkKeys(pool, other, 'b')).resolves.toBeUndefined();
  });

  test('are in no record of the simulated runtime', () => {
    expect(service.runtime).toBeInstanceOf(SimulatedRuntime);
    expect(readSimulated(service.directory)).not.toContain('canary');
  });
});
