import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS, type Access } from '../../../src/access/access.js';
import { covers, SCOPES, type Scope } from '../../../src/access/scopes.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { setQuotas } from '../../../src/quotas/set.js';
import { TOOLS } from '../../../src/mcp/tools/all.js';
import type { Client } from '../../support/client.js';
import { connectHttp, type Agent } from '../../support/mcp.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let owner: Client;
let agent: Agent;

beforeAll(async () => {
  service = await startTestService();
  owner = await service.newOrg();
  agent = await connectHttp(service.url, owner.key);
});
afterAll(async () => {
  await agent.close();
  await service.close();
});

async function keyWith(access: Partial<Access>): Promise<string> {
  const made = await createKey(service.ctx.pool, owner.org.id, 'tried', operator('test'), {
    ...FULL_ACCESS,
    ...access,
  });
  return made.key;
}

/** Connects with a key of these rights, for the time of `work`. */
async function asKey<T>(access: Partial<Access>, work: (agent: Agent) => Promise<T>): Promise<T> {
  const other = await connectHttp(service.url, await keyWith(access));
  try {
    return await work(other);
  } finally {
    await other.close();
  }
}

const make = (name: string, more: object = {}) =>
  agent.call('create_sandbox', { image: 'busybox', name, ...more });

test('the list of tools has schemas, hints, and the scopes of the key', async () => {
  const { tools } = await agent.client.listTools();
  expect(tools.map(({ name }) => name)).toEqual(TOOLS.map(({ name }) => name));
  for (const { name, title, description, inputSchema, annotations } of tools) {
    expect([name, title, description]).toEqual([name, expect.any(String), expect.stringContaining('Scope')]);
    expect(inputSchema).toMatchObject({ type: 'object', additionalProperties: false });
    for (const [field, schema] of Object.entries(inputSchema.properties ?? {})) {
      expect([name, field, (schema as { description?: string }).description]).toEqual([
        name,
        field,
        expect.any(String),
      ]);
    }
    expect(annotations).toMatchObject({
      readOnlyHint: expect.any(Boolean),
      destructiveHint: expect.any(Boolean),
      openWorldHint: false,
    });
  }
  expect(agent.client.getInstructions()).toContain('create_sandbox');
});

test('a new sandbox is ephemeral, limited and without a network, unless the caller asks', async () => {
  const { value, isError } = await make('safe');
  expect([isError, value.status, value.network, value.ephemeral]).toEqual([false, 'running', false, true]);
  const { body } = await owner.get('/v1/sandboxes/by-name/safe');
  expect(body.spec).toMatchObject({
    resources: { vcpus: 1, memory_mib: 512 },
    network: { enabled: false },
    lifecycle: { ephemeral: true, max_duration_secs: 3_600 },
  });
  const asked = await make('asked', {
    network: 'public',
    ephemeral: false,
    vcpus: 2,
    memory_mib: 1_024,
    max_duration_secs: 60,
    labels: { team: 'ml' },
    env: { LANG: 'C' },
  });
  expect(asked.value).toMatchObject({ vcpus: 2, memory_mib: 1_024, network: true, labels: { team: 'ml' } });
  const { body: chosen } = await owner.get('/v1/sandboxes/by-name/asked');
  expect(chosen.spec.lifecycle).toMatchObject({ ephemeral: false, max_duration_secs: 60 });
  await make('domains', { allow_domains: ['pypi.org'] });
  const { body: gated } = await owner.get('/v1/sandboxes/by-name/domains');
  expect(gated.spec.network.policy).toMatchObject({
    default_egress: 'deny',
    rules: [{ destination: { domain_suffix: 'pypi.org' }, action: 'allow' }],
  });
});

test('without a name a sandbox gets a free one', async () => {
  const { value } = await agent.call('create_sandbox', { image: 'busybox' });
  expect(value.name).toMatch(/^agent-[0-9a-f]{10}$/);
});

test('sandboxes are listed, shown, stopped, started and deleted', async () => {
  const { value: made } = await make('cycle', { ephemeral: false, labels: { set: 'cycle' } });
  const list = async () =>
    (await agent.call('list_sandboxes', { labels: { set: 'cycle' } })).value.sandboxes.map(
      ({ id, status }: any) => [id, status],
    );
  expect(await list()).toEqual([[made.id, 'running']]);
  const stopped = await agent.call('stop_sandbox', { sandbox: 'cycle' });
  expect(stopped.value).toMatchObject({ id: made.id, status: 'stopped', stop_reason: 'requested' });
  expect((await agent.call('start_sandbox', { sandbox: made.id })).value.status).toBe('running');
  expect((await agent.call('get_sandbox', { sandbox: 'cycle' })).value.id).toBe(made.id);
  expect((await agent.call('delete_sandbox', { sandbox: 'cycle' })).isError).toBe(false);
  expect(await list()).toEqual([]);
});

test('a long list has pages, and the cursor continues it', async () => {
  for (const name of ['page-1', 'page-2', 'page-3']) await make(name, { labels: { set: 'pages' } });
  const first = await agent.call('list_sandboxes', { labels: { set: 'pages' }, limit: 2 });
  const rest = await agent.call('list_sandboxes', {
    labels: { set: 'pages' },
    limit: 2,
    cursor: first.value.next_cursor,
  });
  const names = [...first.value.sandboxes, ...rest.value.sandboxes].map(({ name }: any) => name);
  expect([names, rest.value.next_cursor]).toEqual([['page-3', 'page-2', 'page-1'], null]);
});

test('usage is that of the REST API, without its points for each day', async () => {
  const { value } = await agent.call('get_usage', { month: '2026-01' });
  const { body } = await owner.get('/v1/billing/usage', { month: '2026-01' });
  const { daily: _, ...summary } = body;
  expect(value).toEqual(summary);
});

test('previews are opened, listed and closed', async () => {
  await make('served');
  const opened = await agent.call('open_preview', { sandbox: 'served', port: 8000, path: '/a?b=1' });
  expect(opened.value).toMatchObject({ port: 8000, url: expect.stringContaining('#sandkeep-grant=') });
  const list = async () => (await agent.call('list_previews', { sandbox: 'served' })).value.previews;
  expect(await list()).toMatchObject([{ preview: opened.value.preview, port: 8000, path: '/a?b=1' }]);
  expect(JSON.stringify(await list())).not.toContain('grant');
  const closed = await agent.call('close_preview', { sandbox: 'served', preview: opened.value.preview });
  expect(closed.isError).toBe(false);
  expect(await list()).toEqual([]);
});

test('the files of a sandbox are kept as a snapshot, from which others start until it is deleted', async () => {
  const { value: source } = await make('prepared');
  const made = await agent.call('create_snapshot', { sandbox: 'prepared', name: 'kept', labels: { a: 'b' } });
  expect(made.value).toMatchObject({ name: 'kept', status: 'ready', source_sandbox: 'prepared' });
  const listed = await agent.call('list_snapshots', { labels: { a: 'b' } });
  expect(listed.value).toEqual({ snapshots: [made.value], next_cursor: null });
  const again = await agent.call('create_snapshot', { sandbox: source.id, name: 'kept' });
  expect([again.isError, again.text]).toEqual([true, expect.stringContaining('delete_snapshot')]);
  for (const [name, snapshot] of [
    ['by-name', 'kept'],
    ['by-id', made.value.snapshot],
  ]) {
    const started = await agent.call('start_from_snapshot', { snapshot, name });
    expect(started.value).toMatchObject({ name, status: 'running', ephemeral: true, network: false });
    const { body } = await owner.get(`/v1/sandboxes/by-name/${name}`);
    expect(body.disk_snapshot_id).toBe(made.value.snapshot);
  }
  const other = await connectHttp(service.url, (await service.newOrg()).key);
  expect((await other.call('list_snapshots')).value.snapshots).toEqual([]);
  for (const tool of ['start_from_snapshot', 'delete_snapshot'])
    for (const snapshot of ['kept', made.value.snapshot])
      expect((await other.call(tool, { snapshot })).text).toContain('snapshot_not_found');
  await other.close();
  expect((await agent.call('delete_snapshot', { snapshot: 'kept' })).isError).toBe(false);
  const missing = await agent.call('start_from_snapshot', { snapshot: 'kept' });
  expect([missing.isError, missing.text]).toEqual([true, expect.stringContaining('list_snapshots')]);
});

test('a sandbox is forked, and its copies are those of the operation', async () => {
  await make('forking', { ephemeral: false });
  const made = await agent.call('fork_sandbox', { sandbox: 'forking', count: 2, labels: { set: 'copies' } });
  expect(made.value).toMatchObject({ status: 'succeeded', count: 2, error: null });
  expect(made.value.sandboxes.map(({ name }: any) => name)).toEqual(['forking-1', 'forking-2']);
  const { value } = await agent.call('get_fork', { fork: made.value.fork });
  expect(value.sandboxes.map(({ id }: any) => id)).toEqual(made.value.sandboxes.map(({ id }: any) => id));
  const { value: listed } = await agent.call('list_sandboxes', { labels: { set: 'copies' } });
  expect(listed.sandboxes).toHaveLength(2);
  const taken = await agent.call('fork_sandbox', { sandbox: 'forking', count: 101 });
  expect([taken.isError, taken.text]).toEqual([true, expect.stringContaining('count')]);
  const other = await connectHttp(service.url, (await service.newOrg()).key);
  expect((await other.call('get_fork', { fork: made.value.fork })).text).toContain(
    'fork_operation_not_found',
  );
  await other.close();
});

test('a build that fails has its reason and its log, and another organization sees neither', async () => {
  // Nothing runs in a simulated sandbox.
  const failed = await agent.call('build_template', { tag: 'tools:1', from: 'busybox', commands: ['true'] });
  expect([failed.isError, failed.value]).toEqual([
    true,
    expect.objectContaining({ template: 'tools:1', status: 'failed', snapshot: null, digest: null }),
  ]);
  expect(failed.value.note).toContain('read_template_log');
  for (const template of ['tools:1', failed.value.id]) {
    const log = await agent.call('read_template_log', { template });
    expect([log.isError, log.text]).toEqual([
      false,
      expect.stringMatching(/FROM busybox[^]*the build: failed/),
    ]);
  }
  const { value } = await agent.call('list_templates', { name: 'tools' });
  expect(value).toMatchObject({ templates: [{ id: failed.value.id, status: 'failed' }], next_cursor: null });
  const other = await connectHttp(service.url, (await service.newOrg()).key);
  expect((await other.call('list_templates')).value.templates).toEqual([]);
  for (const tool of ['get_template', 'read_template_log', 'delete_template'])
    for (const template of ['tools:1', failed.value.id])
      expect([tool, (await other.call(tool, { template })).text]).toEqual([
        tool,
        expect.stringContaining('template_not_found'),
      ]);
  await other.close();
  const wrong = await agent.call('get_template', { template: 'a:b:c' });
  expect([wrong.isError, wrong.text]).toEqual([true, expect.stringContaining('agent:1')]);
});

test('the log of a simulated sandbox is empty, as a tool and as a resource', async () => {
  const { value } = await make('quiet');
  const tool = await agent.call('read_logs', { sandbox: 'quiet' });
  expect([tool.isError, tool.text]).toEqual([false, '(the log is empty so far)']);
  const { resources } = await agent.client.listResources();
  const uri = `sandkeep://sandboxes/${value.id}/logs`;
  expect(resources.find((one) => one.uri === uri)).toMatchObject({ name: 'quiet/logs' });
  expect((await agent.client.readResource({ uri })).contents).toEqual([
    { uri, mimeType: 'text/plain', text: '' },
  ]);
  const { resourceTemplates } = await agent.client.listResourceTemplates();
  expect(resourceTemplates.map(({ name }) => name)).toEqual(['logs', 'files']);
});

test('every resource of a long list is on exactly one page', async () => {
  const names: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await agent.client.listResources(cursor === undefined ? {} : { cursor });
    names.push(...page.resources.map(({ name }) => name));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  expect(names.length).toBe(new Set(names).size);
  const { body } = await owner.get('/v1/sandboxes', { limit: 100 });
  expect(names.toSorted()).toEqual(body.data.map(({ name }: any) => `${name}/logs`).toSorted());
});

describe('an error says what is wrong, and what to do', () => {
  test.each([
    ['get_sandbox', { sandbox: 'nobody' }, ['sandbox_not_found', 'list_sandboxes']],
    ['run_command', { sandbox: 'safe', command: 'true' }, ['not_supported', 'runs no processes']],
    ['create_sandbox', { image: 'busybox', name: 'safe' }, ['name_already_exists', 'leave the name out']],
    ['create_sandbox', { image: 'busybox', vcpus: 9_999 }, ['invalid_sandbox_config', 'resources.vcpus']],
    ['create_sandbox', { image: 'not an image' }, ['invalid', 'image.reference']],
    ['create_sandbox', {}, ['image is required']],
    ['create_sandbox', { image: 'busybox', memory: 1 }, ['there is no field "memory"', 'memory_mib']],
    ['list_sandboxes', { status: ['paused'] }, ['invalid_request', 'running']],
    ['list_sandboxes', { cursor: 'x' }, ['invalid_request', 'cursor']],
    ['get_usage', { month: '2026-13' }, ['invalid_request', 'month']],
    ['open_preview', { sandbox: 'safe', port: 0 }, ['port', 'Mend the arguments']],
    ['write_file', { sandbox: 'safe', path: '/a', content: '*', encoding: 'base64' }, ['no base64']],
    ['run_code', { sandbox: 'safe', language: 'cobol', code: 'x' }, ['must be one of python']],
  ])('%s %o', async (tool, input, words) => {
    const { text, isError } = await agent.call(tool, input);
    expect([isError, text]).toEqual([true, expect.any(String)]);
    for (const word of words) expect(text).toContain(word);
  });

  test('an unknown tool, and an unknown resource', async () => {
    await expect(agent.call('create_sandbx', {})).rejects.toThrow('did you mean create_sandbox?');
    for (const uri of ['sandkeep://sandboxes/safe', 'file:///etc/passwd', 'sandkeep://sandboxes/%ff/logs'])
      await expect(agent.client.readResource({ uri })).rejects.toThrow('there is no resource');
    await expect(agent.client.readResource({ uri: 'sandkeep://sandboxes/nobody/logs' })).rejects.toThrow(
      'list_sandboxes',
    );
  });

  test('a create beyond a quota', async () => {
    const setMost = (max_sandboxes: number | null) =>
      setQuotas(service.ctx.pool, owner.org.id, { max_sandboxes }, operator('test'));
    await setMost(0);
    const quota = await agent.call('create_sandbox', { image: 'busybox' });
    await setMost(null);
    expect([quota.isError, quota.text]).toEqual([true, expect.stringContaining('delete_sandbox')]);
  });
});

/** A call of each tool that reaches its operation. */
const CALLS: Record<string, Record<string, unknown>> = {
  create_sandbox: { image: 'busybox' },
  list_sandboxes: {},
  get_sandbox: { sandbox: 'nobody' },
  start_sandbox: { sandbox: 'nobody' },
  stop_sandbox: { sandbox: 'nobody' },
  delete_sandbox: { sandbox: 'nobody' },
  run_command: { sandbox: 'nobody', command: 'true' },
  run_code: { sandbox: 'nobody', language: 'sh', code: 'true' },
  read_file: { sandbox: 'nobody', path: '/a' },
  write_file: { sandbox: 'nobody', path: '/a', content: 'a' },
  list_files: { sandbox: 'nobody', path: '/' },
  open_preview: { sandbox: 'nobody', port: 80 },
  list_previews: { sandbox: 'nobody' },
  close_preview: { sandbox: 'nobody', preview: '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55' },
  create_snapshot: { sandbox: 'nobody', name: 'kept' },
  list_snapshots: {},
  start_from_snapshot: { snapshot: 'nobody' },
  delete_snapshot: { snapshot: 'nobody' },
  fork_sandbox: { sandbox: 'nobody', count: 1 },
  get_fork: { fork: '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55' },
  build_template: { tag: 'nobody:1', from: 'template:nobody:1', commands: ['true'] },
  list_templates: {},
  get_template: { template: 'nobody' },
  read_template_log: { template: 'nobody' },
  start_from_template: { template: 'nobody' },
  // The name of a template is looked up first.
  delete_template: { template: '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55' },
  read_logs: { sandbox: 'nobody' },
  get_usage: {},
};

describe('each tool with each scope', () => {
  test('every tool is called', () => {
    expect(Object.keys(CALLS).toSorted()).toEqual(TOOLS.map(({ name }) => name).toSorted());
  });

  test.each(TOOLS.map(({ name, scopes }) => [name, scopes] as const))(
    '%s works with %s, and with nothing less',
    async (name, scopes) => {
      const refused = (scope: Scope, held: readonly Scope[]) => held.some((one) => covers([one], scope));
      for (const scope of scopes) {
        const without = SCOPES.filter((held) => !covers([held], scope));
        expect(refused(scope, without)).toBe(false);
        const { text, isError } = await asKey({ scopes: without }, (other) => other.call(name, CALLS[name]));
        // The id of a sandbox needs no lookup, so a second scope may not be asked for first.
        expect([name, scope, isError, text]).toEqual([
          name,
          scope,
          true,
          expect.stringMatching(/insufficient_scope|sandbox_not_found/),
        ]);
      }
      const [needed] = scopes;
      const without = SCOPES.filter((held) => !covers([held], needed!));
      const byId = { ...CALLS[name], ...('sandbox' in CALLS[name]! ? { sandbox: UNKNOWN } : {}) };
      const lacking = await asKey({ scopes: without }, (other) => other.call(name, byId));
      expect([name, lacking.text]).toEqual([name, expect.stringContaining(needed!)]);
      const { text } = await asKey({ scopes }, (other) => other.call(name, CALLS[name]));
      expect([name, text]).toEqual([name, expect.not.stringContaining('insufficient_scope')]);
    },
  );
});

const UNKNOWN = '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55';

test('a key narrowed to labels sees and makes only its own', async () => {
  const labels = { agent: 'claude' };
  await asKey({ scopes: ['sandboxes:write', 'sandboxes:exec'], labels }, async (other) => {
    const elsewhere = { image: 'busybox', labels: { agent: 'other' } };
    const refused = await other.call('create_sandbox', elsewhere);
    expect([refused.isError, refused.text]).toEqual([true, expect.stringContaining('{"agent":"claude"}')]);
    const { value } = await other.call('create_sandbox', { image: 'busybox', name: 'narrow' });
    expect(value.labels).toEqual(labels);
    const { value: seen } = await other.call('list_sandboxes');
    expect(seen.sandboxes.map(({ id }: any) => id)).toEqual([value.id]);
    for (const tool of ['get_sandbox', 'stop_sandbox', 'delete_sandbox', 'read_logs', 'list_previews'])
      expect([tool, (await other.call(tool, { sandbox: 'safe' })).text]).toEqual([
        tool,
        expect.stringContaining('sandbox_not_found'),
      ]);
    expect((await other.client.listResources()).resources.map(({ name }) => name)).toEqual(['narrow/logs']);
  });
});

test('a key of another network cannot connect', async () => {
  const key = await keyWith({ cidrs: ['192.0.2.0/24'] });
  await expect(connectHttp(service.url, key)).rejects.toThrow(/address_not_allowed/);
});

test('another organization sees and changes nothing', async () => {
  const other = await connectHttp(service.url, (await service.newOrg()).key);
  const { body: victim } = await owner.get('/v1/sandboxes/by-name/safe');
  for (const [name, input] of Object.entries(CALLS)) {
    if (!('sandbox' in input)) continue;
    for (const sandbox of ['safe', victim.id]) {
      const { text, isError } = await other.call(name, { ...input, sandbox });
      expect([name, isError, text]).toEqual([name, true, expect.stringContaining('resource not found')]);
    }
  }
  expect((await other.call('list_sandboxes')).value.sandboxes).toEqual([]);
  expect((await other.client.listResources()).resources).toEqual([]);
  for (const rest of ['logs', 'files/etc/passwd'])
    await expect(
      other.client.readResource({ uri: `sandkeep://sandboxes/${victim.id}/${rest}` }),
    ).rejects.toThrow('resource not found');
  await other.close();
  expect((await owner.get('/v1/sandboxes/by-name/safe')).body).toEqual(victim);
});

test('the audit trail has the events of the REST calls, with the key as their actor', async () => {
  const { value } = await make('audited');
  const { body } = await owner.get('/v1/events', { resource_id: value.id });
  const created = body.data.find(({ event_type: type }: any) => type === 'sandbox_created');
  expect(created.actor).toMatchObject({ kind: 'api_key', api_key_id: owner.keyId });
});
