import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  BARE_SPEC,
  clientOf,
  importAll,
  importedEvents,
  importText,
  line,
  listAll,
  shown,
  toText,
  type Line,
} from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

/** Counts the rows of an organization in every table: a refused import leaves none. */
async function rowsOf(org: Line): Promise<number> {
  const tables = ['sandboxes', 'sandbox_labels', 'runs', 'volumes', 'accruals', 'events'];
  const counts = tables.map((table) => `(select count(*) from ${table} where org_id = $1)`);
  const { rows } = await service.ctx.pool.query<{ found: number }>(
    `select (select count(*) from orgs where id = $1) + ${counts.join(' + ')} as found`,
    [org['id']],
  );
  return rows[0]!.found;
}

describe('bad lines', () => {
  /** An organization that does not exist. */
  const nowhere: Line = { kind: 'org', id: '0190e5a0-0000-7000-8000-000000000000' };
  const without = ({ ...copy }: Line, key: string): Line => {
    delete copy[key];
    return copy;
  };
  const spec = (change: Record<string, unknown>) => ({ spec: { ...BARE_SPEC, ...change } });

  /** Each case: the third line, after a good organization and a good sandbox, and the error for it. */
  const LINES: [string, (org: Line, sandbox: Line) => unknown, string | RegExp][] = [
    ['not JSON', () => '{"kind": "org"', 'is not JSON'],
    ['not an object', () => '[1]', 'is not a JSON object'],
    ['null', () => 'null', 'is not a JSON object'],
    ['a word', () => '"org"', 'is not a JSON object'],
    ['no kind', () => '{}', 'kind is required: one of org, sandbox, run, volume, accrual, event'],
    ['an unknown kind', () => ({ kind: 'snapshot' }), /^kind /],
    ['a kind of another type', () => ({ kind: 7 }), /^kind /],
    ['a missing field', (org) => without(line.sandbox(org), 'slug'), 'slug is required'],
    [
      'a missing nullable field',
      (_org, sandbox) => without(line.run(sandbox), 'stopped_at'),
      'stopped_at is required',
    ],
    ['a missing payload', (org) => without(line.event(org), 'payload'), 'payload is required'],
    [
      'an ephemeral sandbox whose spec is not',
      (org) => line.sandbox(org, { ephemeral: true, ...spec({ lifecycle: { ephemeral: false } }) }),
      'ephemeral and spec.lifecycle.ephemeral differ: give both the same value',
    ],
    [
      'a persistent sandbox whose spec is ephemeral',
      (org) => line.sandbox(org, { ephemeral: false, ...spec({ lifecycle: { ephemeral: true } }) }),
      'ephemeral and spec.lifecycle.ephemeral differ: give both the same value',
    ],
    ['a UUID that is none', (org) => line.sandbox(org, { id: 'sandbox-1' }), 'id must be a UUID'],
    ['a UUID as a URN', (org) => line.sandbox(org, { id: `urn:uuid:${org['id']}` }), 'id must be a UUID'],
    [
      'a UUID inside an actor that is none',
      (org) => line.event(org, { actor: { kind: 'api_key', api_key_id: '1', name: 'x' } }),
      'actor.api_key_id must be a UUID',
    ],
    ['an unknown actor', (org) => line.event(org, { actor: { kind: 'robot' } }), /^actor\.kind /],
    [
      'a day that is not',
      (org) => line.sandbox(org, { created_at: '2026-02-29T00:00:00Z' }),
      /^created_at must be /,
    ],
    [
      'a time without an offset',
      (org) => line.sandbox(org, { created_at: '2026-02-28T00:00:00' }),
      /^created_at must be /,
    ],
    [
      'a second 60 in the middle of a day',
      (org) => line.event(org, { timestamp: '2016-12-31T12:00:60Z' }),
      /^timestamp must be /,
    ],
    [
      'a year that cannot be written',
      (org) => line.event(org, { timestamp: '9999-12-31T23:59:59-01:00' }),
      /^timestamp must be /,
    ],
    ['a number where a time is due', (org) => line.event(org, { timestamp: 5 }), /^timestamp must be a /],
    [
      'an unknown status',
      (org) => line.sandbox(org, { status: 'paused' }),
      /^status must be one of created, /,
    ],
    ['an empty name', (org) => line.sandbox(org, { name: '' }), 'name must not be empty'],
    [
      'a name without end',
      (org) => line.sandbox(org, { name: 'n'.repeat(501) }),
      /^name must NOT have more than 500/,
    ],
    ['a spec without its parts', (org) => line.sandbox(org, { spec: {} }), /^spec\.\w+ is required/],
    [
      'a mount of another type',
      (org) => line.sandbox(org, spec({ mounts: [{ type: 'Nfs', guest: '/', options: {} }] })),
      /^spec\.mounts\[0\]\.type /,
    ],
    [
      'a label that is no string',
      (org) => line.sandbox(org, spec({ labels: { a: 1 } })),
      'spec.labels.a must be a string',
    ],
    [
      'a label that no index holds',
      (org) => line.sandbox(org, spec({ labels: { a: '☃'.repeat(834) } })),
      /^the label "a" is longer than 2500 bytes/,
    ],
    [
      'an actor that no index holds',
      (org) => line.event(org, { actor: { kind: 'system', code: 'x'.repeat(3_000), label: 'x' } }),
      /^the actor is longer than 2000 bytes/,
    ],
    ['a fraction of a CPU', (_org, sandbox) => line.run(sandbox, { vcpus: 0.5 }), /^vcpus must be a /],
    [
      'too many CPUs',
      (_org, sandbox) => line.run(sandbox, { vcpus: 2 ** 31 }),
      /^vcpus must be <= 2147483647/,
    ],
    [
      'less than no memory',
      (_org, sandbox) => line.run(sandbox, { memory_mib: -1 }),
      /^memory_mib must be >= 0/,
    ],
    [
      'stopped before it started',
      (_org, sandbox) =>
        line.run(sandbox, { started_at: '2026-03-01T00:00:00.000001Z', stopped_at: '2026-03-01T00:00:00Z' }),
      'stopped_at is before started_at',
    ],
    [
      'run for more than a hundred years',
      (_org, sandbox) =>
        line.run(sandbox, { started_at: '1926-01-01T00:00:00Z', stopped_at: '2026-03-01T00:00:00Z' }),
      'a run is longer than a hundred years',
    ],
    [
      'a sandbox stopped before it started',
      (org) => line.sandbox(org, { started_at: '2026-03-02T00:00:00Z', stopped_at: '2026-03-01T00:00:00Z' }),
      'stopped_at is before started_at',
    ],
    [
      'a sandbox stopped but never started',
      (org) => line.sandbox(org, { stopped_at: '2026-03-01T00:00:00Z' }),
      'stopped_at needs started_at',
    ],
    [
      'an accrual that ends before it begins',
      (org) => line.accrual(line.volume(org), { from: '2026-03-02T00:00:00Z' }),
      'to is before from',
    ],
    [
      'an accrual of less than nothing',
      (org) => line.accrual(line.volume(org), { used_mib: -0.5 }),
      /^used_mib must be >= 0/,
    ],
    [
      'an accrual of more than can be summed',
      (org) => line.accrual(line.volume(org), { used_mib: 1e308 }),
      /^used_mib must be <= /,
    ],
    [
      'a number that is too large to be one',
      (org) => JSON.stringify(line.accrual(line.volume(org))).replace(':100', ':1e999'),
      /^used_mib must be a /,
    ],
    [
      'a host volume with a name',
      (org) => line.volume(org, { volume_kind: 'host' }),
      'a managed volume has a name, the host volume has none',
    ],
    [
      'a managed volume without one',
      (org) => line.volume(org, { name: null }),
      'a managed volume has a name, the host volume has none',
    ],
    [
      'an unknown kind of volume',
      (org) => line.volume(org, { volume_kind: 'nfs' }),
      'volume_kind must be one of host, managed',
    ],
    [
      'U+0000 in a value',
      (org) => line.event(org, { payload: { a: ['x\0y'] } }),
      'payload.a[0] has U+0000 or half of a surrogate pair',
    ],
    [
      'U+0000 in a key',
      (org) => line.event(org, { payload: { 'x\0y': 1 } }),
      'payload has U+0000 or half of a surrogate pair',
    ],
    [
      'half of a surrogate pair',
      (org) => line.sandbox(org, { name: '\ud83d' }),
      'name has U+0000 or half of a surrogate pair',
    ],
    [
      'nested without end',
      (org) => JSON.stringify(line.event(org)).replace('{}', '['.repeat(100_000) + ']'.repeat(100_000)),
      'is nested more than 200 levels deep',
    ],
    [
      'an unknown organization',
      () => line.sandbox(nowhere),
      'there is no organization with this org_id, neither in the store nor in the file',
    ],
    ['an event of an unknown organization', () => line.event(nowhere), /^there is no organization/],
    [
      'an accrual of an unknown organization',
      () => line.accrual(line.volume(nowhere)),
      /^there is no organization/,
    ],
    [
      'a run of an unknown sandbox',
      (org) => line.run(line.sandbox(org)),
      'the organization has no sandbox with this sandbox_id, neither in the store nor in the file',
    ],
    [
      'a name that is taken',
      (org, sandbox) => line.sandbox(org, { name: sandbox['name'] }),
      'another sandbox of the organization has this name and is not removed',
    ],
    [
      'a slug that is taken',
      (org, sandbox) => line.sandbox(org, { slug: sandbox['slug'] }),
      'another sandbox has this slug and is not removed',
    ],
    [
      'an organization slug that is taken',
      (org) => line.org({ slug: org['slug'] }),
      'another organization has this slug',
    ],
  ];

  test.each(LINES)('%s', async (_name, make, reason) => {
    const org = line.org();
    const sandbox = line.sandbox(org);
    const bad = make(org, sandbox);
    const text = `${toText([org, sandbox])}${typeof bad === 'string' ? bad : JSON.stringify(bad)}\n${toText([line.event(org)])}`;
    const expected = { lines: 4, badCount: 1 };
    const report = [{ line: 3, reason: typeof reason === 'string' ? reason : expect.stringMatching(reason) }];

    const refused = await importText(service, text);
    expect(refused).toMatchObject({ ...expected, bad: report, committed: false });
    expect(refused.imported).toEqual({ org: 0, sandbox: 0, run: 0, volume: 0, accrual: 0, event: 0 });
    expect(await rowsOf(org)).toBe(0);

    const skipped = await importText(service, text, { skipBad: true });
    expect(skipped).toMatchObject({ ...expected, bad: report, committed: true });
    expect(skipped.imported).toEqual({ org: 1, sandbox: 1, run: 0, volume: 0, accrual: 0, event: 1 });
    const client = await clientOf(service, org);
    expect(await listAll(client, '/v1/sandboxes')).toEqual([shown(sandbox)]);
    expect(await importedEvents(client)).toHaveLength(1);
  });

  /** Each case: lines of which the last one clashes with an earlier one, either in the file or already in the store. */
  const CLASHES: [string, (org: Line) => Line[], RegExp][] = [
    [
      'a second run that is not stopped',
      (org) => {
        const sandbox = line.sandbox(org);
        return [sandbox, line.run(sandbox, { stopped_at: null }), line.run(sandbox, { stopped_at: null })];
      },
      /^the sandbox has another run that is not stopped$/,
    ],
    [
      'a second host volume',
      (org) => {
        const host = { volume_kind: 'host', name: null };
        const used = line.volume(org, host);
        return [used, line.accrual(used), line.volume(org, host)];
      },
      /^the organization has another host volume$/,
    ],
    [
      'a second volume of one name',
      (org) => [line.volume(org, { name: 'x' }), line.volume(org, { name: 'x' })],
      /^another volume of the organization has this name and is not removed$/,
    ],
    [
      'a second sandbox of one name',
      (org) => [line.sandbox(org, { name: 'x' }), line.sandbox(org, { name: 'x' })],
      /^another sandbox of the organization has this name/,
    ],
    [
      'a second sandbox of one slug in another organization',
      (org) => {
        const other = line.org();
        return [
          other,
          line.sandbox(org, { slug: `s-${org['id']}` }),
          line.sandbox(other, { slug: `s-${org['id']}` }),
        ];
      },
      /^another sandbox has this slug/,
    ],
    [
      'a second organization of one slug',
      () => [line.org({ slug: 'twice' }), line.org({ slug: 'twice' })],
      /^another organization has this slug$/,
    ],
  ];

  test.each(CLASHES)('%s, in the file or in the store', async (_name, make, reason) => {
    const org = line.org();
    const all = [org, ...make(org)];
    const report = { reason: expect.stringMatching(reason) };
    const refused = await importAll(service, all);
    expect(refused).toMatchObject({ committed: false, bad: [{ line: all.length, ...report }] });
    expect(await rowsOf(org)).toBe(0);

    expect(await importAll(service, all.slice(0, -1))).toMatchObject({ committed: true, bad: [] });
    const again = await importAll(service, [all.at(-1)]);
    expect(again).toMatchObject({ committed: false, bad: [{ line: 1, ...report }] });
  });

  test('names and slugs of removed resources are free', async () => {
    const org = line.org();
    const removed_at = '2026-03-02T00:00:00Z';
    const first = line.sandbox(org, { removed_at });
    const { name, slug } = first;
    const host = { volume_kind: 'host', name: null };
    const lines = [
      org,
      first,
      line.sandbox(org, { name, slug }),
      line.sandbox(org, { name, slug, removed_at }),
      line.volume(org, { name: 'x', removed_at }),
      line.volume(org, { name: 'x' }),
      line.volume(org, { ...host, removed_at }),
      line.volume(org, host),
    ];
    expect(await importAll(service, lines)).toMatchObject({ committed: true, bad: [] });
    const client = await clientOf(service, org);
    expect(await listAll(client, '/v1/sandboxes')).toHaveLength(1);
    expect((await client.get('/v1/volumes')).body).toHaveLength(2);
  });

  test('two accruals of one volume with one start and different values are refused', async () => {
    const org = line.org();
    const volume = line.volume(org);
    const lines = [
      org,
      volume,
      line.accrual(volume),
      line.accrual(volume),
      line.accrual(volume, { used_mib: 101 }),
    ];
    expect((await importAll(service, lines)).bad).toEqual([
      { line: 5, reason: 'an earlier line has another accrual of this volume from the same time' },
    ]);
  });

  test('an open run cannot be added to a sandbox that this service runs', async () => {
    const client = await service.newOrg();
    const { body } = await client.post('/v1/sandboxes', {
      name: 'own',
      image: { type: 'oci', reference: 'busybox' },
    });
    const sandbox = { kind: 'sandbox', ...body };
    expect(await importAll(service, [line.run(sandbox)])).toMatchObject({ committed: true });
    const { bad } = await importAll(service, [line.run(sandbox, { stopped_at: null })]);
    expect(bad).toEqual([{ line: 1, reason: expect.stringMatching(/^this service runs the sandbox/) }]);
    expect((await client.post(`/v1/sandboxes/${body.id}/start`)).status).toBe(200);
  });

  test('a line that refers to a bad line is bad too; each is reported once, in file order', async () => {
    const taken = line.org();
    const bad = line.org({ slug: taken['slug'] });
    const sandbox = line.sandbox(bad);
    const { bad: report, badCount } = await importAll(service, [taken, line.run(sandbox), sandbox, bad, {}]);
    expect(badCount).toBe(4);
    expect(report.map((found) => found.line)).toEqual([2, 3, 4, 5]);
  });

  test('the report keeps the first thousand bad lines, and counts all', async () => {
    const org = line.org();
    const orphan = line.sandbox(nowhere);
    const { bad, badCount, lines } = await importText(
      service,
      toText([org, orphan]) + '?\n'.repeat(1500) + toText([line.sandbox(nowhere)]),
    );
    expect([lines, badCount, bad.length]).toEqual([1503, 1502, 1000]);
    expect(bad.map((found) => found.line)).toEqual(Array.from({ length: 1000 }, (_, index) => index + 2));
  });
});
