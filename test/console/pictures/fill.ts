import { until } from '../../support/polling.js';
import type { Api } from './api.js';
import { IMAGES } from './images.js';
import { requestOf, WANTED } from './sandboxes.js';

const DAY_MS = 86_400_000;
const GIVE_UP_MS = 300_000;
const WORKER_DOCKERFILE = `FROM ${IMAGES.agent}
ENV MODE=agent
WORKDIR /app
RUN echo "installing 3 packages" && cat requirements.txt
RUN adduser -D agent || true
CMD ["sh", "run.sh"]
`;

/** An organization as a team of thirty leaves it on a working day. Returns the ids that pages have in their address. */
export async function fill(api: Api): Promise<Record<string, string>> {
  const ids: Record<string, string> = {};
  await keysAndBudgets(api);
  ids['volume'] = await volumes(api);
  for (const wanted of WANTED) {
    const { id } = await api.post('/v1/sandboxes', requestOf(wanted));
    ids[wanted.name] = id as string;
  }
  const idOf = (name: string) => ids[name]!;
  const ofState = (...states: string[]) => WANTED.filter(({ state }) => states.includes(state));
  const reach = async (name: string, ...statuses: string[]) =>
    until(
      async () => (await api.get(`/v1/sandboxes/${idOf(name)}`))['status'] as string,
      (status) => statuses.includes(status),
      GIVE_UP_MS,
    );
  const start = async (...states: string[]) => {
    for (const { name } of ofState(...states)) await api.post(`/v1/sandboxes/${idOf(name)}/start`);
    for (const { name } of ofState(...states)) await reach(name, 'running', 'stopped', 'failed');
  };
  // The others leave no room for these.
  await start('stopped');
  for (const { name } of ofState('stopped')) await api.post(`/v1/sandboxes/${idOf(name)}/stop`);
  for (const { name } of ofState('stopped')) await reach(name, 'stopped');
  await start('running', 'ended', 'failed');
  for (const { name } of ofState('deleted')) await api.delete(`/v1/sandboxes/${idOf(name)}`);
  // A second run makes the strip of runs and the timeline longer.
  await api.post(`/v1/sandboxes/${idOf('agent-amber')}/restart`);
  await reach('agent-amber', 'running');
  ids['snapshot'] = await snapshots(api, idOf);
  ids['template'] = await templates(api);
  await pools(api);
  for (const label of ['review', 'demo for sales']) {
    await api.post(`/v1/sandboxes/${idOf('web-preview-502')}/previews`, {
      port: 8000,
      ttl_secs: 7200,
      label,
    });
  }
  ids['webhook'] = await webhooks(api);
  return ids;
}

async function keysAndBudgets(api: Api): Promise<void> {
  const inDays = (days: number) => new Date(Date.now() + days * DAY_MS).toISOString();
  const keys = [
    {
      name: 'ci',
      scopes: ['sandboxes:write', 'sandboxes:exec'],
      labels: { team: 'ci' },
      cidrs: ['10.0.0.0/8'],
      expires_at: inDays(5),
    },
    {
      name: 'agents in production',
      scopes: ['sandboxes:write', 'sandboxes:exec'],
      labels: { team: 'research' },
    },
    { name: 'grafana', scopes: ['billing:read', 'sandboxes:read'], expires_at: inDays(300) },
    { name: 'auditor export', scopes: ['events:read'], expires_at: inDays(60) },
    { name: 'old laptop', scopes: ['sandboxes:read'] },
  ];
  for (const key of keys) {
    const { id } = await api.post('/v1/keys', key);
    if (key.name === 'old laptop') await api.delete(`/v1/keys/${id}`);
  }
  const budgets = [
    { name: 'everything', scope: { type: 'organization' }, measure: 'cost', limit: '400', action: 'warn' },
    {
      name: 'machine learning',
      scope: { type: 'label', key: 'team', value: 'ml' },
      measure: 'vcpu_hours',
      // The history has about 530 hours in a month. Its sandboxes have to start on the last day too.
      limit: '600',
      action: 'refuse_starts',
    },
    {
      name: 'previews',
      scope: { type: 'label', key: 'team', value: 'web' },
      measure: 'cost',
      limit: '60',
      action: 'stop',
    },
  ];
  for (const budget of budgets) await api.post('/v1/budgets', budget);
}

async function volumes(api: Api): Promise<string> {
  const wanted = [
    ['datasets', 'ml', 50],
    ['checkpoints', 'ml', 100],
    ['build-cache', 'ci', 20],
    ['manuals', 'data', undefined],
  ] as const;
  const ids: string[] = [];
  for (const [name, team, capacity_gib] of wanted) {
    const body = { name, labels: { team }, ...(capacity_gib && { capacity_gib }) };
    ids.push((await api.post('/v1/volumes', body))['id'] as string);
  }
  const volume = ids.at(-1)!;
  await api.post(`/v1/volumes/${volume}/files/mkdir`, { path: 'questions' });
  for (const [path, lines] of [
    ['readme.md', 1],
    ['prices.csv', 120],
    ['questions/november.jsonl', 900],
  ] as const) {
    await api.put(
      `/v1/volumes/${volume}/files/content?path=${path}`,
      '{"question":"How many?"}\n'.repeat(lines),
    );
  }
  return volume;
}

/** The status in which the work at this path ends. */
async function ended(api: Api, path: string): Promise<void> {
  await until(
    async () => (await api.get(path))['status'] as string,
    (status) => ['succeeded', 'failed'].includes(status),
    GIVE_UP_MS,
  );
}

async function snapshots(api: Api, idOf: (name: string) => string): Promise<string> {
  let newest = '';
  for (const [name, of] of [
    ['amber-before-upgrade', 'agent-amber'],
    ['notebook-amelia-friday', 'notebook-amelia'],
    ['ci-warm-cache', 'ci-main-20417'],
  ] as const) {
    const body = { kind: 'disk', sandbox_id: idOf(of), name, labels: { keep: 'monthly' } };
    newest = (await api.post('/v1/snapshots', body))['id'] as string;
    await ended(api, `/v1/snapshot-operations/${newest}`);
  }
  return newest;
}

async function templates(api: Api): Promise<string> {
  const options = encodeURIComponent('{"pull_policy":"never","resources":{"vcpus":1,"memory_mib":256}}');
  const failing = WORKER_DOCKERFILE.replace('RUN adduser', 'RUN python3 -m compileall .\nRUN adduser');
  const tools = `FROM ${IMAGES.runner}\nRUN echo tools\n`;
  const ids: string[] = [];
  for (const [tag, dockerfile] of [
    ['worker:7', WORKER_DOCKERFILE],
    ['worker:8', failing],
    ['tools:1', tools],
  ] as const) {
    const { id } = await api.post(`/v1/templates?tag=${tag}&sandbox=${options}`, dockerfile);
    ids.push(id as string);
    await ended(api, `/v1/templates/${id}`);
  }
  return ids[1]!;
}

async function pools(api: Api): Promise<void> {
  const pool = (image: string, size: number) => ({
    image: { type: 'oci', reference: image },
    pull_policy: 'never',
    resources: { vcpus: 1, memory_mib: 128 },
    size,
    most: 10,
  });
  await api.put('/v1/pools/agents', pool(IMAGES.agent, 2));
  await api.put('/v1/pools/previews', pool(IMAGES.node, 1));
  const ready = async () => (await api.get('/v1/pools/agents'))['ready'] as number;
  await until(ready, (count) => count === 2, GIVE_UP_MS);
}

async function webhooks(api: Api): Promise<string> {
  const { id } = await api.post('/v1/webhooks', {
    url: 'https://hooks.example.com/sandkeep',
    description: 'Alerts of the operations channel',
    event_types: ['sandbox_failed', 'webhook_tested'],
  });
  await api.post('/v1/webhooks', {
    url: 'https://siem.example.com/intake/sandkeep',
    description: 'Everything, for the SIEM',
  });
  await api.post(`/v1/webhooks/${id}/test`);
  return id as string;
}

/** Two sandboxes ask for more room than there is. Later starts wait behind them. */
export async function startWaiting(api: Api, ids: Readonly<Record<string, string>>): Promise<void> {
  for (const { name, state } of WANTED) {
    if (state === 'waiting') await api.post(`/v1/sandboxes/${ids[name]}/start`);
  }
}

export async function stopWaiting(api: Api, ids: Readonly<Record<string, string>>): Promise<void> {
  for (const { name, state } of WANTED) {
    if (state === 'waiting') await api.post(`/v1/sandboxes/${ids[name]}/stop`);
  }
}
