import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeClient, type Client } from '../support/client.js';
import { describeDocker, docker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import {
  cleanUp,
  inDatabase,
  kill,
  launch,
  makeFolder,
  ready,
  stop,
  until,
  type Served,
} from '../support/processes.js';
import { archiveOf, BUILDS_MS, build, endedBuild } from '../support/templates.js';

const SANDBOX = JSON.stringify({ resources: { vcpus: 1, memory_mib: 64 }, pull_policy: 'never' });

describeDocker('after kill -9 in a build', () => {
  let folder: string;
  let service: Served;
  let key: string;
  let client: Client;
  let instance: string;
  let stages = 0;
  beforeAll(async () => {
    makeImage();
    folder = makeFolder();
    service = await serve();
    key = service.firstKey!;
    client = clientOf();
    instance = await inDatabase(folder, async (database) => {
      const { rows } = await database.query<{ id: string }>('select id from instance');
      return rows[0]!.id;
    });
  });
  afterAll(async () => {
    // First, so that it makes no more of them.
    await stop(service);
    for (const { Id } of await containers()) await docker.getContainer(Id).remove({ force: true });
    for (const { Id } of await images()) await docker.getImage(Id).remove({ force: true });
    await cleanUp(folder);
  });

  function serve(): Promise<Served> {
    const engine = ['--runtime', 'docker', '--docker-socket', SOCKET, '--docker-network', 'none'];
    const fixed = [
      '--json',
      '--port',
      '0',
      '--preview-host',
      'none',
      '--log-level',
      'warn',
      '--volume-purge-hours',
      '0',
    ];
    return ready(launch(['serve', ...fixed, '--data-dir', folder, ...engine]), folder);
  }
  const clientOf = () => makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
  const label = () => ({ label: [`dev.sandkeep.instance=${instance}`] });
  const containers = async () =>
    docker.listContainers({ all: true, filters: { label: [...label().label, 'dev.sandkeep.sandbox'] } });
  const images = async () => docker.listImages({ filters: label() });
  const count = async (condition: string, ...values: string[]) =>
    inDatabase(folder, async (database) => {
      const { rows } = await database.query<{ count: number }>(
        `select count(*)::int as count from ${condition}`,
        values,
      );
      return rows[0]!.count;
    });

  /** The moments of the kills: each is a condition on the rows of the build. */
  test.each([
    ['its sandbox is about to start', 'templates where id = $1 and sandbox_id is not null'],
    ['a command runs', `template_logs where template_id = $1 and source = 'stdout' and text like '%begun%'`],
    ['its disk is captured', `snapshots where template_id = $1 and status = 'in_progress'`],
    ['a result is kept', 'template_layers where template_id = $1'],
  ])(
    'when %s, it ends as failed, and nothing half made stays',
    { timeout: BUILDS_MS },
    async (moment, condition) => {
      // A capture takes a moment, and a busy machine may look too late for one of them.
      const more = Array.from({ length: 40 }, (_, index) => `RUN echo ${index}\n`).join('');
      const steps = `COPY a /a\nRUN echo "${moment}"; echo begun; sleep 0.5\n${more}RUN sleep 600\n`;
      const files = await archiveOf({
        Dockerfile: `FROM ${IMAGE}\n${steps}`,
        a: 'content',
      });
      expect(await killIn(files, moment, condition)).toBe('interrupted');
    },
  );

  test.each([
    [
      'a stage is kept and the next one begins',
      `templates t where id = $1 and sandbox_id is not null and exists (
         select from template_layers l where l.template_id = t.id)`,
    ],
    [
      'the files of a stage are read',
      // The session lasts for a moment, which a busy machine may miss: then the step that copies the files has begun.
      `templates t where id = $1 and (
         steps_done = 1 and exists (
           select from sandbox_sessions s where s.sandbox_id = t.sandbox_id and s.details ->> 'kind' = 'files')
         or exists (
           select from template_logs l where l.template_id = t.id and l.text like '%: COPY --from=made%'))`,
    ],
    [
      'the last stage runs',
      `template_logs where template_id = $1 and source = 'stdout' and text like '%begun%'`,
    ],
  ])(
    'when %s, a later build of the stages begins with those that are kept',
    { timeout: BUILDS_MS },
    async (moment, condition) => {
      const file = (end: string) => `FROM ${IMAGE} AS made
RUN echo "${moment}" > /made; busybox dd if=/dev/urandom of=/large bs=1M count=64
FROM ${IMAGE}
COPY --from=made /made /large /kept/
RUN echo begun; ${end}
`;
      expect(await killIn(file('sleep 600'), moment, condition)).toBe('interrupted');
      // A tag of its own: the kept results of a template that another one replaces stay for later builds.
      stages += 1;
      const built = await build(client, `staged:${stages}`, file('cat /kept/made'), { sandbox: SANDBOX });
      expect([built['status'], built['error']]).toEqual(['succeeded', null]);
      expect(built['steps_cached']).toBeGreaterThanOrEqual(1);
    },
  );

  /** Kills the service when a count of rows is not 0, and starts it again. Returns the error code of the build. */
  async function killIn(body: string, moment: string, condition: string): Promise<string> {
    const query = { tag: 'killed:1', sandbox: SANDBOX };
    const { body: requested } = await client.post('/v1/templates', body, query);
    await until(moment, async () => (await count(condition, requested.id)) > 0);
    kill('SIGKILL', service.pid);
    await service.exited;
    service = await serve();
    client = clientOf();
    const ended = await endedBuild(client, requested.id);
    expect(ended['status']).toBe('failed');
    await until('its sandbox is gone', async () => (await containers()).length === 0);
    await until(
      'the build has no sandbox',
      async () => (await count('templates where sandbox_id is not null')) === 0,
    );
    await until('its run has ended', async () => (await count('runs where end_reason is null')) === 0);
    expect(await count('template_contexts')).toBe(0);
    await until('only kept results stay', async () => {
      const layers = await count('template_layers');
      const kept = await count(`snapshots where removed_at is null and status <> 'failed'`);
      return kept === layers && (await images()).length === layers;
    });
    // The files of stages have no names.
    const spools = join(folder, 'imports');
    expect(existsSync(spools) ? readdirSync(spools) : []).toEqual([]);
    return ended['error'].code as string;
  }

  test(
    'the same steps are built afterwards, and everything goes with the template',
    { timeout: BUILDS_MS },
    async () => {
      const file = `FROM ${IMAGE}\nRUN echo whole > /whole\n`;
      const built = await build(client, 'whole:1', file, { sandbox: SANDBOX });
      expect([built['status'], built['error']]).toEqual(['succeeded', null]);
      for (const { id } of (await client.get('/v1/templates')).body.data)
        await client.delete(`/v1/templates/${id}`);
      await until('no image stays', async () => (await images()).length === 0);
    },
  );
});
