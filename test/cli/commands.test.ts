import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import {
  expectReachable,
  expectRefused,
  run,
  runJson,
  urlOf,
  UUID,
  type Ended,
  type RunOptions,
} from '../support/cli.js';
import { makeClient } from '../support/client.js';
import { clientOf, listAll } from '../support/import-lines.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let url: string;
let folder: string;

beforeAll(async () => {
  service = await startTestService({ worker: false });
  url = urlOf(service.database);
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-cli-'));
  // The embedded database may run as another user.
  chmodSync(folder, 0o755);
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Runs a command on the database of the service. */
function onService(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
  return run(args, { cwd: folder, ...options, env: { DATABASE_URL: url } });
}

function json(args: readonly string[], options: RunOptions = {}): Promise<any> {
  return runJson(args, { cwd: folder, ...options, env: { DATABASE_URL: url } });
}

describe('--help', () => {
  const common = [
    '--config',
    'SANDKEEP_CONFIG',
    '--data-dir',
    'SANDKEEP_DATA_DIR',
    '--database-url',
    'DATABASE_URL',
    '--json',
    '--help',
    'Usage: sandkeep',
  ];
  const docker = [
    '--docker-socket',
    'SANDKEEP_DOCKER_SOCKET',
    '--docker-network',
    'SANDKEEP_DOCKER_NETWORK',
    '--docker-runtime',
    'SANDKEEP_DOCKER_RUNTIME',
  ];
  const server = [
    '--host',
    'SANDKEEP_HOST',
    '127.0.0.1',
    '--port',
    'SANDKEEP_PORT',
    '8080',
    '--runtime',
    'SANDKEEP_RUNTIME',
    '"auto", "docker", "kubernetes", "microvm", "simulated"',
    '--volume-purge-hours',
    'SANDKEEP_VOLUME_PURGE_HOURS',
    '--ephemeral-linger-secs',
    'SANDKEEP_EPHEMERAL_LINGER_SECS',
    '--log-level',
    'SANDKEEP_LOG_LEVEL',
  ];
  const kinds = ['org ', 'sandbox ', 'run ', 'volume ', 'accrual ', 'event '];

  test.each<[string, string[]]>([
    ['', ['serve', 'doctor', 'migrate', 'org', 'key', 'import', '--version', '--help']],
    ['serve', [...common, ...docker, '--docker-allow', 'SANDKEEP_DOCKER_ALLOW', ...server]],
    ['doctor', [...common, ...docker]],
    ['migrate', common],
    ['org', ['create', 'list']],
    ['org create', [...common, '--name <name>', '--slug <slug>']],
    ['org list', common],
    ['key', ['create', 'list', 'rotate', 'revoke']],
    [
      'key create',
      [
        ...common,
        '--org <slug>',
        '--name <name>',
        '--scopes <scopes>',
        '--label <name=value>',
        '--cidr <network>',
        '--expires <time>',
      ],
    ],
    ['key rotate', [...common, '<id>', '--overlap-secs <n>']],
    ['key list', [...common, '--org <slug>']],
    ['key revoke', [...common, '<id>']],
    ['import', [...common, '<file>', '--skip-bad', 'standard input', ...kinds]],
  ])('sandkeep %s: shows every option and its environment variable', async (command, words) => {
    const { code, out, err } = await run([...command.split(' ').filter(Boolean), '--help']);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    // The text is wrapped to the width of the terminal.
    const text = out.replaceAll(/\s+/g, ' ');
    for (const word of words) expect(text).toContain(word);
    const described = out.split('\n').filter((row) => /^ {2}(-\w, )?--/.test(row));
    for (const row of described) expect(row).toMatch(/^ {2}\S.*? {2,}\S/);
  });

  test("shows the command's own options first, with the required ones first and marked", async () => {
    const { out } = await run(['key', 'create', '--help']);
    const rows = out.split('\n').filter((row) => /^( {2}(-\w, )?--|\S)/.test(row));
    expect(rows.map((row) => row.trim().split(/ {2,}/)[0])).toEqual([
      'Usage: sandkeep key create [options]',
      'create an API key; it is printed once and stored nowhere',
      'Options:',
      '--org <slug>',
      '--name <name>',
      '--scopes <scopes>',
      '--label <name=value>',
      '--cidr <network>',
      '--expires <time>',
      'Common options:',
      '--config <file>',
      '--data-dir <dir>',
      '--database-url <url>',
      '--event-keys <keys>',
      '--event-keys-file <file>',
      '--json',
      '-h, --help',
    ]);
    expect(out).toMatch(/--org <slug> +required: the organization it opens/);
    expect(out).toMatch(/--name <name> +required: /);
    expect(out).not.toMatch(/--scopes <scopes> +required/);
    expect(out.replaceAll(/\s+/g, ' ')).toContain(
      'a time from now such as 12h or 90d, or an RFC 3339 date-time such as 2030-01-31T00:00:00Z',
    );
  });

  test('is shown for a command without its verb, which exits with an error', async () => {
    for (const args of [[], ['org'], ['key']]) {
      const { code, err } = await run(args);
      expect([code, err.startsWith('Usage: sandkeep')]).toEqual([1, true]);
    }
  });

  test('has the version of the package in --version', async () => {
    const { version } = JSON.parse(readFileSync(join(PACKAGE_ROOT, 'package.json'), 'utf8'));
    expect(await run(['--version'])).toEqual({ code: 0, out: `${version}\n`, err: '' });
  });
});

describe('organizations and keys', () => {
  test('org create prints id, name and slug, and org list shows them', async () => {
    const org = await json(['org', 'create', '--name', 'Größe ☃', '--slug', 'groesse']);
    expect(org).toEqual({ id: expect.stringMatching(UUID), name: 'Größe ☃', slug: 'groesse' });
    const listed = (await json(['org', 'list'])).find(({ id }: any) => id === org.id);
    expect(listed).toEqual({ ...org, created_at: expect.stringMatching(/^\d{4}-.*Z$/) });

    const client = await clientOf(service, { kind: 'org', ...org });
    const events = await listAll(client, '/v1/events', { event_type: '!api_key_created' });
    expect(events.map((event) => [event.event_type, event.actor.label])).toEqual([
      ['volume_created', 'sandkeep org create'],
      ['org_created', 'sandkeep org create'],
    ]);

    const made = await onService(['org', 'create', '--name', 'In Words', '--slug', 'in-words']);
    expect(made).toMatchObject({ code: 0, err: '' });
    expect(made.out).toMatch(/"In Words"/);
    expect(made.out).toContain('sandkeep key create --org in-words --name NAME');
    const list = await onService(['org', 'list']);
    expect(list.out.split('\n')[0]).toMatch(/^SLUG +NAME +ID +CREATED$/);
    expect(list.out).toMatch(new RegExp(`^groesse +Größe ☃ +${org.id} `, 'm'));
  });

  test('key create prints id and key, and the key opens its organization only', async () => {
    const [{ org }, { org: other }] = [await service.newOrg(), await service.newOrg()];
    const made = await json(['key', 'create', '--org', org.slug, '--name', 'ci']);
    expect(made).toEqual({
      id: expect.stringMatching(UUID),
      key: expect.stringMatching(/^skp_[0-9A-Za-z]{38}$/),
    });
    const client = makeClient(service.url, { org, key: made.key, keyId: made.id });
    const { body } = await client.get('/v1/events');
    expect(body.data.map((event: any) => event.org_id)).not.toContain(other.id);
    expect(body.data[0]).toMatchObject({
      event_type: 'api_key_created',
      actor: { kind: 'system', code: 'operator', label: 'sandkeep key create' },
      payload: { api_key_id: made.id, name: 'ci' },
    });

    const words = await onService(['key', 'create', '--org', org.slug, '--name', 'in words']);
    expect(words).toMatchObject({ code: 0, err: '' });
    const [key, ...rest] = words.out.split('\n');
    expect(rest.join('\n')).toContain('only time');
    await expectReachable(service.url, key!);
  });

  test('key list shows the first characters of a key, and never all of it', async () => {
    const [{ org }, { org: other }] = [await service.newOrg(), await service.newOrg()];
    const { id, key } = await json(['key', 'create', '--org', org.slug, '--name', 'listed']);
    await json(['key', 'create', '--org', other.slug, '--name', 'elsewhere']);
    const listed = await json(['key', 'list', '--org', org.slug]);
    expect(listed.map((found: any) => found.name)).toEqual(['test key', 'listed']);
    expect(listed[1]).toEqual({
      org_id: org.id,
      org_slug: org.slug,
      id,
      name: 'listed',
      prefix: key.slice(0, 12),
      scopes: ['org:admin'],
      labels: {},
      cidrs: [],
      expires_at: null,
      created_at: expect.any(String),
      created_by: { kind: 'system', code: 'operator', label: 'sandkeep key create' },
      last_used_at: null,
      rotated_at: null,
      previous_secret_until: null,
      revoked_at: null,
    });
    const all = await json(['key', 'list']);
    expect(all.map((found: any) => found.name)).toEqual(expect.arrayContaining(['listed', 'elsewhere']));
    const text = await onService(['key', 'list']);
    expect(text.out).toMatch(
      new RegExp(`^${org.slug} +listed +${key.slice(0, 12)}… +${id} +org:admin +\\S+ +never +live$`, 'm'),
    );
    for (const shown of [JSON.stringify([listed, all]), text.out])
      expect(shown).not.toContain(key.slice(0, 13));
  });

  test('key create makes a key with less access, and key rotate replaces its secret', async () => {
    const { org } = await service.newOrg();
    const narrow = [
      '--scopes',
      'sandboxes:read',
      '--label',
      'team=ml',
      '--label',
      'env=',
      '--cidr',
      '127.0.0.0/8',
    ];
    const { id, key } = await json([
      'key',
      'create',
      '--org',
      org.slug,
      '--name',
      'narrow',
      '--expires',
      '1h',
      ...narrow,
    ]);
    const [, listed] = await json(['key', 'list', '--org', org.slug]);
    expect(listed).toMatchObject({
      scopes: ['sandboxes:read'],
      labels: { team: 'ml', env: '' },
      cidrs: ['127.0.0.0/8'],
    });
    const left = Date.parse(listed.expires_at) - Date.now();
    expect(left > 3_500_000 && left <= 3_600_000).toBe(true);
    await expectReachable(service.url, key);
    const rotated = await json(['key', 'rotate', id, '--overlap-secs', '60']);
    expect(rotated).toEqual({ id, key: expect.stringMatching(/^skp_[0-9A-Za-z]{38}$/) });
    await expectReachable(service.url, key);
    await expectReachable(service.url, rotated.key);
    const last = await json(['key', 'rotate', id, '--overlap-secs', '0']);
    // The service may have read a key just before, and answers by that for a moment.
    for (const ended of [rotated.key, key])
      await vi.waitFor(() => expectReachable(service.url, ended, 401), 60_000);
    await expectReachable(service.url, last.key);
    await json(['key', 'revoke', id]);
    expectRefused(await onService(['key', 'rotate', id]), 'the key is revoked: make another');
  });

  test('key revoke ends a key, and answers the same when repeated', async () => {
    const { org } = await service.newOrg();
    const { id, key } = await json(['key', 'create', '--org', org.slug, '--name', 'short-lived']);
    const kept = await json(['key', 'create', '--org', org.slug, '--name', 'kept']);
    await expectReachable(service.url, key);
    const revoked = await json(['key', 'revoke', id]);
    await vi.waitFor(() => expectReachable(service.url, key, 401), 60_000);
    await expectReachable(service.url, kept.key);
    expect(revoked).toEqual({ id, revoked_at: expect.stringMatching(/Z$/) });
    expect(await json(['key', 'revoke', id])).toEqual(revoked);
    const again = await onService(['key', 'revoke', id.toUpperCase()]);
    expect(again).toMatchObject({ code: 0, err: '' });
    expect(again.out).toContain(`revoked since ${revoked.revoked_at}`);
    const client = makeClient(service.url, { org, key: kept.key, keyId: kept.id });
    const { body } = await client.get('/v1/events', { event_type: 'api_key_revoked' });
    expect(body.data.map((event: any) => event.payload)).toEqual([
      { api_key_id: id, name: 'short-lived', prefix: key.slice(0, 12) },
    ]);
    const list = await onService(['key', 'list', '--org', org.slug]);
    expect(list.out).toMatch(/short-lived .* revoked \S+Z$/m);
  });
});

describe('a mistake is answered by one sentence on standard error', () => {
  const OLD_ID = '0190e5a0-0000-7000-8000-000000000000';

  test.each<[string[], string | RegExp]>([
    [['nonsense'], "error: unknown command 'nonsense'"],
    [['org', 'list', '--nonsense'], "error: unknown option '--nonsense'"],
    [['org', 'list', 'more'], 'too many arguments'],
    [['org', 'create', '--name', 'x'], "required option '--slug <slug>' not specified"],
    [['key', 'create', '--org', 'x'], "required option '--name <name>' not specified"],
    [['import'], "missing required argument 'file'"],
    [['serve', '--port', 'abc'], '--port is "abc"; it must be a port from 0 to 65535'],
    [['serve', '--port', '65536'], '--port is "65536"; it must be a port from 0 to 65535'],
    [['serve', '--port', ''], '--port is ""; it must be a port from 0 to 65535'],
    [['serve', '--volume-purge-hours', '1.5'], 'it must be a number of hours from 0 to 8760'],
    [
      ['serve', '--runtime', 'firecracker'],
      'it must be one of "auto", "docker", "kubernetes", "microvm", "simulated"',
    ],
    [['import', '/nonexistent/file'], 'cannot read /nonexistent/file: ENOENT'],
    [['import', '/'], 'cannot read /: it is a directory'],
    [['org', 'create', '--name', 'x', '--slug', 'Not_A_Slug'], 'the slug must be 2 to 63 lower-case letters'],
    [['org', 'create', '--name', 'x', '--slug', 'a--b'], 'the slug must be 2 to 63 lower-case letters'],
    [['org', 'create', '--name', ' ', '--slug', 'blank-name'], 'the name must have 1 to 200 characters'],
    [
      ['key', 'create', '--org', 'nobody-has-it', '--name', 'x'],
      'there is no organization with the slug "nobody-has-it"',
    ],
    [['key', 'create', '--org', 'x', '--name', ''], 'the name of a key must have 1 to 200 characters'],
    [['key', 'list', '--org', 'nobody-has-it'], 'there is no organization with the slug "nobody-has-it"'],
    [
      ['key', 'create', '--org', 'x', '--name', 'x', '--scopes', 'sandboxes'],
      'There is no scope "sandboxes".',
    ],
    [['key', 'create', '--org', 'x', '--name', 'x', '--label', 'team'], 'It must be like team=ml.'],
    [
      ['key', 'create', '--org', 'x', '--name', 'x', '--label', 'team=ml'],
      'can only have the scopes of sandboxes',
    ],
    [['key', 'create', '--org', 'x', '--name', 'x', '--cidr', '10.0.0.0/33'], 'a network is written like'],
    [
      ['key', 'create', '--org', 'x', '--name', 'x', '--expires', 'soon'],
      'It takes a time from now such as 30m, 12h or 90d, or an RFC 3339 date-time such as 2030-01-31T00:00:00Z.',
    ],
    [['key', 'create'], 'error: "--org <slug>" and "--name <name>" are required'],
    [['webhook', 'create'], 'error: <url> and "--org <slug>" are required'],
    [['key', 'rotate', OLD_ID], `there is no key with the id ${OLD_ID}`],
    [['key', 'revoke', OLD_ID], `there is no key with the id ${OLD_ID}`],
    [['key', 'revoke', 'skp_x'], '"skp_x" is not the id of a key: see "sandkeep key list"'],
    [['key', 'revoke', '00000000000000000000000000000000----'], 'is not the id of a key'],
  ])('%j', async (args, sentence) => {
    expectRefused(await onService(args), sentence);
  });

  test('a taken slug', async () => {
    const { slug } = (await service.newOrg()).org;
    const refused = await onService(['org', 'create', '--name', 'x', '--slug', slug]);
    expectRefused(refused, `there is already an organization with the slug "${slug}"`);
  });

  test.each<[Record<string, string>, string[], string]>([
    [{ SANDKEEP_PORT: '99999' }, ['serve'], 'SANDKEEP_PORT is "99999"; it must be a port from 0 to 65535'],
    [{ SANDKEEP_RUNTIME: 'lxc' }, ['serve'], 'SANDKEEP_RUNTIME is "lxc"; it must be one of "auto"'],
    [{ SANDKEEP_DATA_DIR: '/dev/null' }, ['org', 'list'], 'the data directory /dev/null cannot be used'],
  ])('an environment that is wrong: %j', async (env, args, sentence) => {
    expectRefused(await run(args, { env }), sentence);
  });

  test.each([
    ['nonsense', 'the database URL cannot be read'],
    ['postgres//keeper:S3cretPw@db.example/db', 'the database URL cannot be read'],
    ['mysql://keeper:S3cretPw@db.example/db', 'the database URL cannot be read'],
    ['postgres://keeper:S3cretPw@127.0.0.1:99999/db', 'the database URL cannot be read'],
    [
      'postgres://keeper:S3cretPw@127.0.0.1:1/db',
      'cannot reach the database: connect ECONNREFUSED 127.0.0.1:1',
    ],
    ['postgres://keeper:S3cret%zzPw@127.0.0.1:1/db', 'cannot reach the database'],
    ['postgres://keeper:S3cretPw@/db?host=/nonexistent', 'cannot reach the database'],
  ])('an unreachable database, without its password: %s', async (databaseUrl, sentence) => {
    const refused = await run(['org', 'list'], { env: { DATABASE_URL: databaseUrl } });
    expectRefused(refused, sentence);
    expect(refused.err).not.toMatch(/S3cret|Pw/);
  });

  test.each([['migrate'], ['import', '/dev/null'], ['serve', '--port', '0', '--runtime', 'simulated']])(
    'an absent database for %s',
    async (...args) => {
      const url = ['--database-url', 'postgres://keeper:S3cretPw@127.0.0.1:1/db'];
      const refused = await run([...args, ...url], { env: { SANDKEEP_LOG_LEVEL: 'silent' } });
      expectRefused(refused, 'cannot reach the database');
      expect(refused.err).not.toContain('S3cretPw');
    },
  );
});
