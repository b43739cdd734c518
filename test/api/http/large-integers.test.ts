import fc from 'fast-check';
import { execFileSync } from 'node:child_process';
import { lstatSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { longJson } from '../../../src/http/long-json.js';
import { serializerOf } from '../../../src/http/serializer.js';
import { parseLine } from '../../../src/import/parse.js';
import { parseExact, stringifyExact } from '../../../src/lib/exact-json.js';
import { Pace, PACE } from '../../../src/fairness/pace.js';
import { PacedSteps } from '../../../src/fairness/paced-steps.js';
import type { Run } from '../../../src/engine/runtime.js';
import { present as presentInSandbox } from '../../../src/sandboxes/files/entry.js';
import { present } from '../../../src/volumes/files/entry.js';
import { VolumeFileStat } from '../../../src/volumes/files/schema.js';
import { anyCharacter } from '../../support/any-character.js';
import type { Client } from '../../support/client.js';
import { BARE_SPEC, line } from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';

const SOFT = '9007199254740993';
const UNLIMITED = '18446744073709551615';

describe('bytes above 2^53 - 1', () => {
  test('the cap of a volume is exact in every answer', async () => {
    const service = await startTestService({ worker: false });
    const client = await service.newOrg();
    const headers = { 'idempotency-key': 'largest' };
    const body = { name: 'largest', capacity_gib: 2_147_483_647 };
    const created = await client.request('POST', '/v1/volumes', { body, headers });
    const path = `/v1/volumes/${created.body.id}`;
    for (const { status, text } of [
      created,
      await client.request('POST', '/v1/volumes', { body, headers }),
      await client.get('/v1/volumes'),
      await client.get(path),
      await client.patch(path, { labels: { team: 'ml' } }),
      await client.delete(path).then(() => client.post(`${path}/restore`)),
    ]) {
      expect([status, /"capacity_bytes":\d+/.exec(text)?.[0]], text).toEqual([
        200,
        `"capacity_bytes":${2_147_483_647n * 2n ** 30n}`,
      ]);
    }
    await service.close();
  });

  test('the size of a sparse file is exact in its volume and in its sandbox', async () => {
    // A tmpfs takes files of 2^63 - 1 bytes.
    const directory = mkdtempSync('/dev/shm/sandkeep-sparse-');
    const file = join(directory, 'sparse');
    const size = 2n ** 62n + 1n;
    execFileSync('truncate', ['-s', String(size), file]);
    const stats = lstatSync(file, { bigint: true });
    const inVolume = await present('/sparse', lstatSync(file), () => Promise.resolve(stats));
    const inSandbox = presentInSandbox('/sparse', {
      mode: 0o100644,
      uid: 0,
      gid: 0,
      size: stats.size,
      mtime: 0n,
      atime: 0n,
    });
    rmSync(directory, { recursive: true });
    for (const entry of [inVolume, inSandbox]) {
      const text = await longJson(new PacedSteps(new Pace(PACE)), 'org', { entries: [entry] });
      expect(text.toString()).toContain(`"size":${size},`);
    }
    expect(serializerOf(VolumeFileStat)({ metadata: inVolume })).toContain(`"size":${size},`);
  });
});

describe('limits above 2^53 - 1', () => {
  let service: TestService;
  let client: Client;
  const given: Run[] = [];
  beforeAll(async () => {
    const failStart = (run: Run) => void given.push(run);
    service = await startTestService({ simulated: { failStart } });
    client = await service.newOrg();
  });
  afterAll(() => service.close());

  const bodyOf = (name: string, soft: string, hard: string) => {
    const whole = JSON.stringify({ ...smallRequest(name), rlimits: ['here'] });
    return whole.replace('"here"', `{"resource":"core","soft":${soft},"hard":${hard}}`);
  };
  const create = (body: string, { headers = {}, query = '' } = {}) =>
    client.request('POST', '/v1/sandboxes', { body, headers, query });
  const shown = `"rlimits":[{"resource":"Core","soft":${SOFT},"hard":${UNLIMITED}}]`;

  test('are exact in every answer and for the runtime', async () => {
    const query = 'start=true&wait_for=running';
    const created = await create(bodyOf('exact', SOFT, UNLIMITED), { query });
    expect(created.body.status, created.text).toBe('running');
    const path = `/v1/sandboxes/${created.body.id}`;
    const answers = [
      created,
      await client.get(path),
      await client.get('/v1/sandboxes/by-name/exact'),
      await client.get('/v1/sandboxes'),
      await client.patch(path, { labels: { team: 'ml' } }),
      await client.get(path),
      await client.post(`${path}/stop`),
    ];
    for (const { status, text } of answers) {
      expect(status, text).toBe(200);
      expect(text).toContain(shown);
    }
    const limit = { resource: 'core', soft: BigInt(SOFT), hard: BigInt(UNLIMITED) };
    expect(given.map(({ spec }) => spec.rlimits)).toEqual([[limit]]);
  });

  test('are ignored in an unknown field', async () => {
    const body = JSON.stringify({ ...smallRequest('unknown'), runtime: { extra: 'here' } });
    const created = await create(body.replace('"here"', SOFT));
    expect([created.status, created.body.warnings?.[0].field], created.text).toEqual([200, 'runtime.extra']);
  });

  test('are exact in a repeated answer; a request that differs in the last digit is another request', async () => {
    const headers = { 'idempotency-key': 'limits' };
    const first = await create(bodyOf('repeated', SOFT, UNLIMITED), { headers });
    const again = await create(bodyOf('repeated', SOFT, UNLIMITED), { headers });
    expect(first.text).toContain(shown);
    expect([again.headers.get('idempotency-replayed'), again.text]).toEqual(['true', first.text]);
    const other = await create(bodyOf('repeated', '9007199254740992', UNLIMITED), { headers });
    expect(other.body.error.code).toBe('idempotency_conflict');
  });

  test.each([
    ['above 64 bits', '0', '18446744073709551616', 'rlimits[0].hard'],
    ['far above 64 bits', '0', '1'.repeat(400), 'rlimits[0].hard'],
    ['with an exponent', '1e19', UNLIMITED, 'rlimits[0].soft'],
    ['negative', '-9223372036854775808', UNLIMITED, 'rlimits[0].soft'],
    ['with the larger one first', UNLIMITED, '18446744073709551614', 'rlimits[0].soft'],
  ])('are refused by their field: %s', async (_, soft, hard, field) => {
    const { status, body } = await create(bodyOf('refused', soft, hard));
    expect([status, body.error?.details]).toEqual([400, { field }]);
  });

  test.each([
    ['lifecycle.max_duration_secs', '{"max_duration_secs":9007199254740993}'],
    ['lifecycle.idle_timeout_secs', '{"idle_timeout_secs":9007199254740992}'],
    ['network.max_connections', '{"max_connections":18446744073709551615}'],
    ['resources.vcpus', '{"vcpus":18446744073709551615}'],
  ])('are refused by field where %s would be rounded', async (field, part) => {
    const whole = JSON.stringify({ ...smallRequest('rounded'), [field.split('.')[0]!]: 'here' });
    const { status, body } = await create(whole.replace('"here"', part));
    expect([status, body.error?.details, body.error?.message]).toEqual([
      400,
      { field },
      expect.stringContaining('<='),
    ]);
  });
});

describe('limits above 2^53 - 1 in an import', () => {
  const lineWith = (hard: string) => {
    const spec = { ...BARE_SPEC, rlimits: [{ resource: 'Core', soft: 0, hard: 'here' }] };
    return JSON.stringify(line.sandbox(line.org(), { spec })).replace('"here"', hard);
  };

  test('are kept to the last digit', () => {
    for (const hard of [SOFT, UNLIMITED]) {
      const { values } = parseLine(lineWith(hard))!;
      expect(values.join(' ')).toContain(`"rlimits":[{"resource":"Core","soft":0,"hard":${hard}}]`);
    }
  });

  test('are rounded in the free-form fields of a secret', () => {
    const secret = { env_var: 'A', placeholder: '$A', allowed_hosts: [{ port: 'here' }], injection: {} };
    const spec = { ...BARE_SPEC, network: { ...BARE_SPEC.network, secrets: [secret] } };
    const { values } = parseLine(JSON.stringify(line.sandbox(line.org(), { spec })).replace('"here"', SOFT))!;
    expect(values.join(' ')).toContain('"allowed_hosts":[{"port":9007199254740992}]');
  });

  test('are refused above 64 bits', () => {
    for (const hard of ['18446744073709551616', '1e30']) {
      expect(() => parseLine(lineWith(hard))).toThrow('spec.rlimits');
    }
  });
});

describe('JSON with exact integers', () => {
  test('integers that a number would round are bigints, and every other value is unchanged', () => {
    const text =
      '{"a":[18446744073709551615,-9007199254740993,9007199254740991,1.00000000000000000001,1e30],' +
      '"b":"\\\\\\"18446744073709551615","18446744073709551615":{"c":18446744073709551615}}';
    expect(parseExact(text)).toEqual({
      a: [18446744073709551615n, -9007199254740993n, 9007199254740991, 1, 1e30],
      b: '\\"18446744073709551615',
      '18446744073709551615': { c: 18446744073709551615n },
    });
  });

  test.each([
    '{18446744073709551615:1}',
    '{18446744073709551615 : 1}',
    '018446744073709551615',
    '18446744073709551615.',
    '+18446744073709551615',
    '18446744073709551615 18446744073709551615',
    '"18446744073709551615',
    '[1844674407370955161518446744073709551615',
  ])('invalid JSON is refused: %s', (text) => {
    expect(() => parseExact(text)).toThrow(SyntaxError);
  });

  test('values survive a round trip, and plain JSON reads as with JSON.parse', () => {
    const { tree } = fc.letrec((tie) => ({
      tree: fc.oneof(
        { maxDepth: 4 },
        fc.string({ unit: anyCharacter }),
        fc.double({ noNaN: true, noDefaultInfinity: true }).map((x) => (Object.is(x, -0) ? 0 : x)),
        fc.maxSafeInteger(),
        fc.bigInt().filter((x) => !Number.isSafeInteger(Number(x))),
        fc.array(tie('tree')),
        fc.dictionary(fc.string(), tie('tree'), { noNullPrototype: true }),
      ),
    }));
    fc.assert(
      fc.property(tree, (value) => {
        // JSON.stringify writes a large double in digits up to 1e21, so it is read back as that integer.
        expect(stringifyExact(parseExact(stringifyExact(value)))).toBe(stringifyExact(value));
      }),
      { numRuns: 500 },
    );
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(JSON.parse(stringifyExact(parseExact(text)))).toEqual(JSON.parse(text));
      }),
    );
  });
});
