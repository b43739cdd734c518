import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { anyCharacter } from '../../support/any-character.js';
import { BARE_SPEC, clientOf, FULL_SPEC, importAll, line, shown } from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';

/** History is in March 2026; the key that reads it is made later. */
const MARCH = { since: '2026-03-01', until: '2026-04-01' };

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

describe('an imported spec', () => {
  test('is shown with every field and every variant', async () => {
    const org = line.org();
    const full = line.sandbox(org, {
      status: 'starting',
      status_reason: 'insufficient_capacity',
      ephemeral: true,
      created_at: '2026-03-01T12:34:56.123456Z',
      last_failure_message: 'out of\tmemory \\N \n\r "x" \u0001',
      spec: FULL_SPEC,
      started_at: '2026-03-02T00:00:00.5Z',
      stopped_at: '2026-03-02T00:00:01Z',
    });
    const bare = line.sandbox(org, { spec: { ...BARE_SPEC, image: null } });
    const unresolved = line.sandbox(org, { status: 'created', spec: null });
    expect(await importAll(service, [org, full, bare, unresolved])).toMatchObject({
      committed: true,
      bad: [],
    });

    const client = await clientOf(service, org);
    for (const expected of [full, bare, unresolved]) {
      const { status, body } = await client.get(`/v1/sandboxes/${expected['id']}`);
      expect(status).toBe(200);
      expect(body).toEqual({
        ...shown(expected),
        ...(expected === full ? { started_at: '2026-03-02T00:00:00.500Z' } : {}),
      });
    }
    expect((await client.get('/v1/sandboxes/by-name/' + full['name'])).body.spec).toEqual(FULL_SPEC);
  });

  test('is shown for any spec that the schema allows', async () => {
    const org = line.org();
    await importAll(service, [org]);
    const client = await clientOf(service, org);
    await fc.assert(
      fc.asyncProperty(fc.array(anySpec, { minLength: 1, maxLength: 5 }), async (specs) => {
        const sandboxes = specs.map((spec) =>
          line.sandbox(org, { spec, status: 'running', ephemeral: spec.lifecycle['ephemeral'] ?? false }),
        );
        const { badCount, bad } = await importAll(service, sandboxes);
        expect(badCount, JSON.stringify(bad)).toBe(0);
        for (const { id, spec } of sandboxes) {
          const { text } = await client.get(`/v1/sandboxes/${id}`);
          expect(canonical(JSON.parse(text).spec)).toBe(canonical(withDefaults(spec)));
        }
      }),
      { numRuns: 25 },
    );
  });
});

describe('an import', () => {
  test('shows two organizations with the same ids only their own rows', async () => {
    const [id, runId, volumeId, eventId] = [uuidv7(), uuidv7(), uuidv7(), uuidv7()];
    const orgs = ['one', 'two'].map((word) => {
      const org = line.org();
      const env = [
        { key: 'WORD', value: word },
        { key: 'SEALED', value: 'canary-sealed', secret: true },
      ];
      const sandbox = line.sandbox(org, { id, spec: { ...BARE_SPEC, env } });
      const volume = line.volume(org, { id: volumeId, name: `volume-${word}` });
      const event = line.event(org, { id: eventId, payload: word });
      return {
        word,
        org,
        sandbox,
        volume,
        lines: [org, sandbox, line.run(sandbox, { id: runId }), volume, line.accrual(volume), event],
      };
    });
    expect(
      await importAll(
        service,
        orgs.flatMap(({ lines }) => lines),
      ),
    ).toMatchObject({ badCount: 0, committed: true });
    for (const { word, org, sandbox, volume } of orgs) {
      const client = await clientOf(service, org);
      const answers = await Promise.all([
        client.get('/v1/sandboxes'),
        client.get(`/v1/sandboxes/${id}`),
        client.get('/v1/events'),
        client.get(`/v1/events/${eventId}`),
        client.get('/v1/volumes'),
        client.get('/v1/billing/usage/sandbox', MARCH),
        client.get('/v1/billing/usage/storage', MARCH),
      ]);
      const [list, one, , event, , compute, storage] = answers.map(({ body }) => body);
      expect(list.data.map((found: any) => found.slug)).toEqual([sandbox['slug']]);
      expect(one.spec.env).toEqual([
        { key: 'WORD', value: word },
        { key: 'SEALED', value: '***', secret: true },
      ]);
      expect(event.payload).toBe(word);
      expect(compute.sandboxes).toEqual([{ id, name: sandbox['name'], slug: sandbox['slug'] }]);
      expect(storage.volumes).toEqual([{ id: volumeId, name: volume['name'] }]);
      const other = orgs.find((candidate) => candidate.org !== org)!;
      for (const { text } of answers) {
        for (const secret of [
          other.org['id'],
          other.sandbox['name'],
          other.volume['name'],
          `"${other.word}"`,
        ]) {
          expect(text).not.toContain(secret);
        }
      }
    }
  });

  test('redacts an address before it is stored', async () => {
    const org = line.org();
    const actor = {
      kind: 'user',
      user_id: uuidv7(),
      label: 'Ada',
      redacted_email: 'ada.lovelace@example.com',
    };
    const event = line.event(org, { actor: { ...actor, email: 'ada.lovelace@example.com' } });
    await importAll(service, [org, event]);
    const { body, text } = await (await clientOf(service, org)).get(`/v1/events/${event['id']}`);
    expect(body.actor).toEqual({ ...actor, redacted_email: 'a***e@e***.com' });
    expect(text).not.toContain('lovelace');
    const { rows } = await service.ctx.pool.query<{ row: string }>(
      'select events::text as row from events where org_id = $1',
      [org['id']],
    );
    expect(rows.map(({ row }) => row).join()).not.toContain('lovelace');
  });

  test('neither shows nor stores unknown keys', async () => {
    const CANARY = 'canary-7f3a';
    const OPEN = new Set(['labels', 'scripts', 'allowed_hosts', 'on_violation', 'payload']);
    function withExtras(value: any): any {
      if (Array.isArray(value)) return value.map(withExtras);
      if (typeof value !== 'object' || value === null) return value;
      const copy = Object.entries(value).map(([key, item]) => [key, OPEN.has(key) ? item : withExtras(item)]);
      const extras = { value: CANARY, volume_id: CANARY, vault_path: [CANARY], sealed: { inner: CANARY } };
      return { ...extras, ...Object.fromEntries(copy) };
    }
    const org = line.org();
    const sandbox = line.sandbox(org, { spec: FULL_SPEC, status: 'running', ephemeral: true });
    const volume = line.volume(org);
    const events = [
      { kind: 'user', user_id: uuidv7(), label: 'Ada', redacted_email: 'a***a@e***.com' },
      { kind: 'api_key', api_key_id: uuidv7(), name: 'ci' },
      { kind: 'system', code: 'scheduler', label: 'The scheduler' },
      { kind: 'ssh_key', key_id: uuidv7(), fingerprint: 'SHA256:abc' },
    ].map((actor) => line.event(org, { actor }));
    const lines = [org, sandbox, line.run(sandbox), volume, line.accrual(volume), ...events];
    expect(JSON.stringify(withExtras(sandbox))).toContain(CANARY);
    expect(await importAll(service, lines.map(withExtras))).toMatchObject({ committed: true, bad: [] });

    const client = await clientOf(service, org);
    expect((await client.get(`/v1/sandboxes/${sandbox['id']}`)).body).toEqual(shown(sandbox));
    const paths = [
      '/v1/sandboxes',
      '/v1/events',
      '/v1/volumes',
      '/v1/billing/usage/sandbox?since=2026-03-01',
    ];
    for (const path of [...paths, '/v1/billing/usage/storage?since=2026-03-01']) {
      const [pathname, query] = path.split('?') as [string, string?];
      const answer = await client.get(pathname, query);
      expect([path, answer.status, answer.text.includes(CANARY)]).toEqual([path, 200, false]);
    }
    for (const table of ['orgs', 'sandboxes', 'runs', 'volumes', 'accruals', 'events']) {
      const { rows } = await service.ctx.pool.query(
        `select 1 from ${table} t where t::text like '%${CANARY}%'`,
      );
      expect([table, rows.length]).toEqual([table, 0]);
    }
  });
});

// Arbitrary specs.

const anyText = fc
  .oneof(fc.string({ unit: anyCharacter, maxLength: 12 }), fc.string({ unit: 'grapheme', maxLength: 12 }))
  .map((text) => text.replaceAll('\0', '').toWellFormed());
const anyName = anyText.filter((text) => text !== '');
const anyMap = fc.dictionary(anyText, anyText, { maxKeys: 4, noNullPrototype: true });
const int32 = fc.nat(2_147_483_647);
const int64 = fc.maxSafeNat();
const words = <T>(...choices: T[]) => fc.constantFrom(...choices);
const orNull = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: null });
const few = <T>(arbitrary: fc.Arbitrary<T>) => fc.array(arbitrary, { maxLength: 3 });
const partly = (model: Record<string, fc.Arbitrary<unknown>>) => fc.record(model, { requiredKeys: [] });

const anyOptions = partly({
  nodev: fc.boolean(),
  noexec: fc.boolean(),
  nosuid: fc.boolean(),
  readonly: fc.boolean(),
});
const anySharing = {
  guest: anyText,
  options: anyOptions,
  stat_virtualization: words('strict', 'relaxed', 'off'),
  host_permissions: words('private', 'mirror'),
};
const anyMount = fc.oneof(
  fc.record({ type: fc.constant('Bind'), ...anySharing }),
  fc.record({ type: fc.constant('Bind'), ...anySharing, quota_mib: orNull(int32) }),
  fc.record({ type: fc.constant('Named'), ...anySharing }),
  fc.record({ type: fc.constant('Named'), name: anyText, ...anySharing }),
  fc.record({ type: fc.constant('Tmpfs'), guest: anyText, options: anyOptions, size_mib: orNull(int32) }),
  fc.record({
    type: fc.constant('DiskImage'),
    guest: anyText,
    format: words('Qcow2', 'Raw', 'Vmdk'),
    options: anyOptions,
    fstype: orNull(anyText),
  }),
);
const action = words('allow', 'deny');
const port = fc.nat(65_535);
const anyRule = fc.record(
  {
    direction: words('egress', 'ingress', 'any'),
    destination: fc.oneof(
      fc.constant('any'),
      fc.record({ cidr: anyText }),
      fc.record({ domain: anyName }),
      fc.record({ domain_suffix: anyName }),
      fc.record({
        group: words('public', 'loopback', 'private', 'link_local', 'metadata', 'multicast', 'host'),
      }),
    ),
    action,
    ports: few(fc.record({ start: port, end: port })),
    protocols: few(words('tcp', 'udp', 'icmpv4', 'icmpv6')),
  },
  { requiredKeys: ['direction', 'destination', 'action'] },
);
const anyNetwork = fc.record(
  {
    enabled: fc.boolean(),
    ports: few(
      fc.record(
        { guest_port: int32, host_port: int32, host_bind: anyText, protocol: words('tcp', 'udp') },
        { requiredKeys: ['guest_port', 'host_port', 'host_bind'] },
      ),
    ),
    trust_host_cas: fc.boolean(),
    dns: orNull(
      partly({ nameservers: few(anyText), query_timeout_ms: int64, rebind_protection: fc.boolean() }),
    ),
    interface: orNull(
      partly({
        ipv4_address: orNull(anyText),
        ipv4_pool: orNull(anyText),
        ipv6_address: orNull(anyText),
        ipv6_pool: orNull(anyText),
        mac: orNull(fc.array(fc.nat(255), { minLength: 6, maxLength: 6 })),
        mtu: orNull(int32),
      }),
    ),
    max_connections: orNull(int64),
    policy: orNull(partly({ default_egress: action, default_ingress: action, rules: few(anyRule) })),
    secrets: few(
      fc.record(
        {
          env_var: anyText,
          placeholder: anyText,
          allowed_hosts: few(fc.dictionary(anyText, fc.jsonValue({ maxDepth: 1 }), { maxKeys: 2 })),
          injection: fc.dictionary(anyText, fc.boolean(), { maxKeys: 4, noNullPrototype: true }),
          on_violation: anyMap,
        },
        { requiredKeys: ['env_var', 'placeholder', 'allowed_hosts', 'injection'] },
      ),
    ),
    tls: orNull(
      partly({
        enabled: fc.boolean(),
        intercepted_ports: few(int32),
        bypass: few(anyText),
        verify_upstream: fc.boolean(),
        upstream_ca_cert: few(anyText),
        scoped_upstream_ca_cert: few(fc.record({ pattern: anyText, path: anyText })),
        scoped_verify_upstream: few(fc.record({ pattern: anyText, verify: fc.boolean() })),
        block_quic_on_intercept: fc.boolean(),
        cache: partly({ capacity: int64, validity_hours: int64 }),
        intercept_ca: partly({ cert_path: orNull(anyText), key_path: orNull(anyText) }),
      }),
    ),
  },
  { requiredKeys: ['enabled', 'ports', 'trust_host_cas'] },
);
const anySpec = fc.record(
  {
    resources: partly({ vcpus: int32, memory_mib: int32, disk_size_mib: orNull(int32) }),
    runtime: partly({
      cmd: orNull(few(anyText)),
      entrypoint: orNull(few(anyText)),
      hostname: orNull(anyText),
      user: orNull(anyText),
      workdir: orNull(anyText),
      shell: orNull(anyText),
      scripts: anyMap,
      log_level: orNull(words('error', 'warn', 'info', 'debug', 'trace')),
      metrics_sample_interval_ms: orNull(int64),
      disable_metrics_sample: fc.boolean(),
    }),
    env: few(fc.record({ key: anyText, value: anyText })),
    labels: anyMap,
    rlimits: few(
      fc.record({
        resource: words(
          'Cpu',
          'Fsize',
          'Data',
          'Stack',
          'Core',
          'Rss',
          'Nproc',
          'Nofile',
          'Memlock',
          'As',
          'Locks',
          'Sigpending',
          'Msgqueue',
          'Nice',
          'Rtprio',
          'Rttime',
        ),
        soft: int64,
        hard: int64,
      }),
    ),
    lifecycle: partly({
      ephemeral: fc.boolean(),
      idle_timeout_secs: orNull(int64),
      max_duration_secs: orNull(int64),
    }),
    mounts: few(anyMount),
    network: anyNetwork,
    image: orNull(anyText),
  },
  { requiredKeys: ['resources', 'runtime', 'env', 'labels', 'rlimits', 'lifecycle', 'mounts', 'network'] },
);

/** Adds the defaults that the API shows for missing fields. */
function withDefaults(spec: any): any {
  const { resources, runtime, lifecycle, mounts, network } = spec;
  const flags = { nodev: false, noexec: false, nosuid: false, readonly: false };
  const dns = { query_timeout_ms: 5000, rebind_protection: true };
  const cache = { capacity: 1000, validity_hours: 24 };
  return {
    ...spec,
    resources: { vcpus: 1, memory_mib: 512, ...resources },
    runtime: { metrics_sample_interval_ms: 1000, disable_metrics_sample: false, ...runtime },
    lifecycle: { ephemeral: false, ...lifecycle },
    mounts: mounts.map((mount: any) => ({ ...mount, options: { ...flags, ...mount.options } })),
    network: {
      ...network,
      ...(network.dns ? { dns: { ...dns, ...network.dns } } : {}),
      ...(network.tls?.cache ? { tls: { ...network.tls, cache: { ...cache, ...network.tls.cache } } } : {}),
    },
  };
}

/** JSON with sorted keys: `toEqual` ignores an own `__proto__`, and the order of keys has no meaning. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const keys = Object.keys(value).toSorted();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical((value as any)[key])}`).join()}}`;
}
