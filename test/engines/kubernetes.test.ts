import { afterAll, beforeAll, expect, test } from 'vitest';
import { followLog } from '../../src/engines/kubernetes/logs.js';
import { placeOf } from '../../src/engines/kubernetes/names.js';
import type { Client } from '../support/client.js';
import { destroyAll } from '../support/docker-service.js';
import { allEvents, openEvents } from '../support/event-stream.js';
import {
  containerStatus,
  describeKubernetes,
  hasEnd,
  limitMemory,
  NODE_IMAGE,
  openNamespace,
  runAgain,
  textOf,
  untilRunning,
  wholeLog,
  type TestNamespace,
} from '../support/kubernetes.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { startWire } from '../support/wire.js';

const START = { start: true };
const request = (name: string, more: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: NODE_IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 64 },
  ...more,
});
const command = (...cmd: string[]) => ({ cmd, entrypoint: [] });
const seconds = (time: Date | string | undefined) => new Date(time!).getTime();

describeKubernetes('the kubernetes runtime', () => {
  let namespace: TestNamespace;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    namespace = await openNamespace();
    service = await startTestService({ ...namespace.service(), settings: { stopGraceMs: 1_000 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    await namespace.remove();
  });

  const sh = async (id: string, script: string) =>
    (await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] })).body;

  const start = async (name: string, more: Record<string, unknown> = {}) =>
    untilRunning(client, await client.post('/v1/sandboxes', request(name, more), START));
  const untilNoPod = (id: string) =>
    until(
      () => namespace.podsOf(id),
      (pods) => pods.length === 0,
    );

  /**
   * Starts sandboxes as large as a node, until one waits for room. A Pod that ends keeps its room for some seconds. The
   * scheduler then gives it to any Pod that waits: so no other Pod may be there, and each start waits for the one
   * before.
   */
  const fillNodes = async (prefix: string) => {
    for (const { id } of (await client.get('/v1/sandboxes', { limit: 100 })).body.data) {
      await client.delete(`/v1/sandboxes/${id}`);
    }
    await until(
      async () => namespace.pods(),
      (pods) => pods.length === 0,
    );
    const resources = { vcpus: service.runtime.bounds.vcpus, memory_mib: 64 };
    const ids: string[] = [];
    for (;;) {
      const large = request(`${prefix}-${ids.length + 1}`, { resources });
      const { body } = await client.post('/v1/sandboxes', large, { start: true });
      const settled = await until(
        () => client.get(`/v1/sandboxes/${body.id}`),
        (answer) => answer.body.status === 'running' || answer.body.status_reason === 'insufficient_capacity',
      );
      if (settled.body.status !== 'running') return { running: ids, waiting: settled };
      ids.push(body.id);
    }
  };

  test('creates the Pod of the specification, and runs commands in it', async () => {
    const body = await start('spec', {
      resources: { vcpus: 1, memory_mib: 64, disk_size_mib: 100 },
      env: [
        { key: 'COLOUR', value: 'blue sky' },
        { key: 'COLOUR', value: 'red $(HOME) $$' },
      ],
      labels: { team: 'ml', 'a/b': 'two words' },
      runtime: {
        ...command('sh', '-c', 'echo "$COLOUR" $(pwd); sleep 600'),
        user: '1000:1001',
        workdir: '/scratch/made/$HOME',
        hostname: 'box',
      },
      mounts: [{ type: 'tmpfs', guest: '/scratch', size_mib: 8 }],
    });
    const [pod] = await namespace.podsOf(body.id);
    expect(pod!.spec).toMatchObject({
      restartPolicy: 'Never',
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      hostname: 'box',
    });
    const [container] = pod!.spec!.containers;
    const amounts = { cpu: '1', memory: '64Mi', 'ephemeral-storage': '100Mi' };
    expect(container!.resources).toEqual({ limits: amounts, requests: amounts });
    expect(container!.securityContext).toEqual({
      privileged: false,
      allowPrivilegeEscalation: false,
      runAsUser: 1000,
      runAsGroup: 1001,
      capabilities: { drop: ['ALL'], add: ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'KILL', 'SETGID', 'SETUID'] },
    });
    expect(pod!.metadata!.labels).toMatchObject({
      'label.sandkeep.dev/team': 'ml',
      'sandkeep.dev/org': client.org.id,
      'sandkeep.dev/sandbox': body.id,
    });
    expect(pod!.metadata!.annotations).toMatchObject({ 'sandkeep.dev/labels': '{"a/b":"two words"}' });
    const { stdout } = await sh(
      body.id,
      'echo "$COLOUR"; id -u; id -g; hostname; touch /scratch/x && echo wrote',
    );
    expect(stdout).toBe('red $(HOME) $$\n1000\n1001\nbox\nwrote\n');
    // Process 1 made the missing parts of the working directory as the user.
    const made = await sh(body.id, 'pwd; stat -c "%u %g %a" /scratch/made .; cd /; rm -r /scratch/made');
    expect(made.stdout).toBe('/scratch/made/$HOME\n1000 1001 755\n1000 1001 755\n');
    const gone = await sh(body.id, 'pwd');
    expect([gone.stdout, gone.stderr]).toEqual([
      '/\n',
      'sandkeep: the working directory "/scratch/made/$HOME" of the sandbox cannot be entered: it does not exist; the command runs in /\n',
    ]);
    const recorded = containerStatus(pod!)!.state!.running!.startedAt;
    expect(new Date(body.started_at).getTime()).toBe(seconds(recorded) + 1_000);
  });

  test('records the end of a command while the Pod runs on, and a lack of memory', async () => {
    const made = await start('ended', {
      runtime: command('sh', '-c', 'until [ -e /tmp/end ]; do sleep 0.1; done; exit 7'),
    });
    expect(made.command).toMatchObject({ status: 'running', ended_at: null });
    await sh(made.id, 'touch /tmp/end');
    const { body } = await until(
      () => client.get(`/v1/sandboxes/${made.id}`),
      (answer) => answer.body.command.status !== 'running',
    );
    const end = { status: 'exited', exit_code: 7, signal: null, oom_killed: false };
    expect(body).toMatchObject({ status: 'running', command: end });
    // Kubernetes tells the start and the end of a container in whole seconds.
    expect(Date.parse(body.command.ended_at)).toBeGreaterThanOrEqual(Date.parse(body.started_at));
    const query = { resource_id: made.id, event_type: 'sandbox_command_ended' };
    expect((await client.get('/v1/events', query)).body.data).toMatchObject([{ payload: end }]);
    const eats = 'a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done';
    expect(await sh(made.id, eats)).toMatchObject({ exit_code: 137, oom_killed: true });
  });

  test('follows the log until the end of the command, and records its exit code', async () => {
    const script = 'echo one; echo two >&2; yes € | head -n 20000 | tr -d "\\n"; sleep 1; exit 3';
    const { body } = await client.post(
      '/v1/sandboxes',
      request('batch', { runtime: command('sh', '-c', script), lifecycle: { ends_with_command: true } }),
      { start: true },
    );
    const failed = await untilStatus(client, body.id, 'failed');
    expect(failed.body.last_failure_message).toContain('ended with code 3');
    const [pod] = await namespace.podsOf(body.id);
    const { finishedAt } = containerStatus(pod!)!.state!.terminated!;
    expect(new Date(failed.body.stopped_at).getTime()).toBeLessThanOrEqual(seconds(finishedAt) + 1_000);
    // The end is in the store, so nothing keeps the Pod from being removed. It is still there, with its log.
    await until(
      () => namespace.podsOf(body.id),
      ([kept]) => kept !== undefined && (kept.metadata?.finalizers ?? []).length === 0,
    );
    const characters = 'one\ntwo\n'.length + 20_000;
    /** False: the log is gone. */
    const readsInParts = async () => {
      const all = await wholeLog(
        client,
        body.id,
        (events) => hasEnd(events) && textOf(events).length >= characters,
      );
      const log = JSON.stringify(all);
      expect(log).toContain('one');
      expect(log).toContain('two');
      expect(textOf(all).replace(/one\n|two\n/g, '') === '€'.repeat(20_000)).toBe(true);
      for (const [index, { id }] of all.slice(0, -1).entries()) {
        const headers = { 'last-event-id': id! };
        const { events } = await openEvents(client, `/v1/sandboxes/${body.id}/logs`, { headers });
        const rest = await allEvents(events);
        if (!hasEnd(rest)) return false;
        expect(textOf(rest) === textOf(all.slice(index + 1)), `after event ${index}`).toBe(true);
      }
      return true;
    };
    await until(readsInParts, (isRead) => isRead);
  });

  test('says in the log why the working directory cannot be made', async () => {
    const { body } = await client.post(
      '/v1/sandboxes',
      request('outside', {
        runtime: { ...command('true'), user: '1000', workdir: '/made/here' },
        lifecycle: { ends_with_command: true },
      }),
      { start: true },
    );
    const failed = await untilStatus(client, body.id, 'failed');
    expect(failed.body.last_failure_message).toContain('ended with code 126');
    await wholeLog(client, body.id, (events) =>
      textOf(events).includes('cannot enter the working directory "/made/here": permission denied'),
    );
  });

  test('ends a log with an error when the connection to the cluster breaks', async () => {
    const script = 'echo one; sleep 600';
    const body = await start('followed', { runtime: command('sh', '-c', script) });
    const wire = await startWire(namespace.server);
    const config = new namespace.library.KubeConfig();
    config.loadFromOptions({
      users: namespace.config.users,
      contexts: namespace.config.contexts,
      currentContext: namespace.config.currentContext,
      clusters: [{ ...namespace.config.getCurrentCluster()!, server: wire.url.replace('http:', 'https:') }],
    });
    const query = { sources: new Set(['stdout'] as const), after: {} };
    const readAndCut = async () => {
      const [pod] = await namespace.podsOf(body.id);
      const log = followLog({ ...namespace, config }, placeOf(pod!), query, AbortSignal.timeout(150_000));
      for await (const chunks of log) {
        const texts = [...chunks].map(({ text }) => text);
        // The time of a line may come before its text.
        if (texts.length === 0) continue;
        expect(texts).toEqual(['one\n']);
        wire.cut();
      }
    };
    const failure = async () => readAndCut().then(String, String);
    let message = await failure();
    for (; message.includes('the node cannot read the log'); message = await failure())
      await runAgain(client, body.id);
    expect(message).toMatch(/ECONNRESET|aborted|Premature close/);
    await wire.close();
    await client.delete(`/v1/sandboxes/${body.id}`);
  });

  test('puts scripts and patches in place before the command starts', async () => {
    const patches = [
      { type: 'text', path: '/srv/new/a', content: 'text', mode: 0o600, replace: false },
      { type: 'symlink', link: '/srv/link', target: 'new/a', replace: false },
      { type: 'mkdir', path: '/srv/empty', mode: 0o700 },
      { type: 'append', path: '/srv/new/a', content: ' and more' },
    ];
    const body = await start('files', {
      patches,
      runtime: {
        ...command('sh', '-c', 'hello > /tmp/said; cat /srv/link >> /tmp/said; sleep 600'),
        scripts: { hello: 'echo hello from $0' },
        workdir: '/srv',
      },
    });
    const said = 'hello from /.sandkeep/scripts/hello\n';
    const show = 'cat /tmp/said; echo; pwd; hello; stat -c %a /srv/new/a /srv/empty';
    const expected = `${said}text and more\n/srv\n${said}600\n700\n`;
    const shown = await until(
      async () => (await sh(body.id, show)).stdout,
      (stdout) => stdout === expected,
    );
    expect(shown).toBe(expected);
    await client.delete(`/v1/sandboxes/${body.id}`);
  });

  test('ends a start whose patch cannot be applied', async () => {
    const patches = [{ type: 'text', path: '/bin', content: '', replace: true }];
    const { body } = await client.post('/v1/sandboxes', request('unpatchable', { patches }), { start: true });
    const failed = await untilStatus(client, body.id, 'failed');
    expect(failed.body.last_failure_message).toBe('patches[0] cannot be applied: /bin is a directory');
    expect(failed.body.started_at).toBeNull();
    await untilNoPod(body.id);
  });

  test('stops with the grace, starts again in another Pod, and bills no second that did not run', async () => {
    const body = await start('runs');
    await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    const stopped = await untilStatus(client, body.id, 'stopped');
    expect(stopped.body.last_failure_message).toBeNull();
    expect(stopped.body.stopped_at >= stopped.body.started_at).toBe(true);
    await untilRunning(client, await client.post(`/v1/sandboxes/${body.id}/start`, {}));
    // The object of the first Pod goes when its node has reported its end.
    await until(
      () => namespace.podsOf(body.id),
      (pods) => pods.length === 1,
    );
    await client.delete(`/v1/sandboxes/${body.id}`);
    await untilStatus(client, body.id, null);
    await untilNoPod(body.id);
  });

  test('takes the name of one user, root', async () => {
    for (const [index, user] of ['root', 'root:0', '0:root'].entries()) {
      const body = await start(`root-${index}`, { runtime: { user } });
      const [pod] = await namespace.podsOf(body.id);
      expect(pod!.spec!.containers[0]!.securityContext!.runAsUser).toBe(0);
      expect((await sh(body.id, 'id -u; id -g')).stdout).toBe('0\n0\n');
      await client.delete(`/v1/sandboxes/${body.id}`);
    }
  });

  test('refuses by field what it cannot do', async () => {
    for (const [more, field] of [
      [{ runtime: { user: 'app' } }, 'runtime.user'],
      [{ runtime: { hostname: 'a.b' } }, 'runtime.hostname'],
      [{ env: [{ key: '1 2', value: '' }] }, 'env[0].key'],
      [{ rlimits: [{ resource: 'nofile', soft: 1, hard: 1 }] }, 'rlimits[0]'],
      [{ network: { enabled: false } }, 'network.enabled'],
      [{ mounts: [{ type: 'tmpfs', guest: '/x', options: { noexec: true } }] }, 'mounts[0].options.noexec'],
      [{ mounts: [{ type: 'bind', host: 'v', guest: '/x' }] }, 'mounts[0]'],
      [{ patches: [{ type: 'remove', path: '/a' }] }, 'patches[0]'],
      [{ resources: { vcpus: 1_000 } }, 'resources.vcpus'],
      [{ resources: { memory_mib: 99_999_999 } }, 'resources.memory_mib'],
    ] as const) {
      const { status, body } = await client.post('/v1/sandboxes', request('refused', more));
      expect([status, body.error?.details?.field], JSON.stringify(body)).toEqual([400, field]);
    }
  });

  test('ends a start that needs the entrypoint of an image of the nodes, and says what to do', async () => {
    const runtime = { cmd: ['sleep', '600'] };
    const { body } = await client.post('/v1/sandboxes', request('nodes-own', { runtime }), { start: true });
    const failed = await untilStatus(client, body.id, 'failed');
    expect(failed.body.last_failure_message).toBe(
      `the entrypoint of the image ${NODE_IMAGE} is known to its nodes only: give runtime.entrypoint, or [] for none`,
    );
    expect(await namespace.podsOf(body.id)).toEqual([]);
  });

  test('ends a start whose image cannot be pulled, and leaves no Pod', async () => {
    const image = { type: 'oci', reference: '127.0.0.1:1/team/app:1' };
    const { body } = await client.post(
      '/v1/sandboxes',
      request('unpullable', { image, pull_policy: 'if_missing' }),
      { start: true },
    );
    const failed = await untilStatus(client, body.id, 'failed');
    expect(failed.body.last_failure_message).toBe(
      'the image 127.0.0.1:1/team/app:1 cannot be pulled: the registry cannot be reached from the node',
    );
    await untilNoPod(body.id);
  });

  test('keeps credentials of a registry only until the image is there', async () => {
    const secrets = async () =>
      (await namespace.core.listNamespacedSecret({ namespace: namespace.namespace })).items.filter(
        ({ type }) => type === 'kubernetes.io/dockerconfigjson',
      );
    const registry = { mode: 'inline', username: 'user', password: 'secret' };
    const [pod] = await namespace.podsOf((await start('private', { registry })).id);
    expect(pod!.spec!.imagePullSecrets).toHaveLength(1);
    await until(secrets, (found) => found.length === 0);
  });

  test('gives secret variables to every command, by a Secret that exists until the container has started', async () => {
    const secret = 'correct horse battery';
    const env = [
      { key: 'TOKEN', value: 'replaced', secret: true },
      { key: 'TOKEN', value: secret, secret: true },
      { key: 'TWO', value: 'one $(TOKEN)\ntwo $$ lines', secret: true },
      { key: 'PLAIN', value: '$(TOKEN)' },
    ];
    const runtime = command('sh', '-c', 'echo "$TOKEN, $TWO, $PLAIN"; sleep 600');
    const registry = { mode: 'inline', username: 'user', password: 'of the registry' };
    // Sandboxes of other tests may have all vCPUs of the nodes.
    const resources = { vcpus: 0, memory_mib: 64 };
    const body = await start('keeps', { env, runtime, registry, resources });
    const masked = { value: '***', secret: true };
    expect(body.spec.env).toEqual([
      { key: 'TOKEN', ...masked },
      { key: 'TWO', ...masked },
      { key: 'PLAIN', value: '$(TOKEN)' },
    ]);
    const { core, namespace: name } = namespace;
    const inCluster = async () => {
      const [secrets, pods, events] = await Promise.all([
        core.listNamespacedSecret({ namespace: name, labelSelector: `sandkeep.dev/sandbox=${body.id}` }),
        namespace.podsOf(body.id),
        core.listNamespacedEvent({ namespace: name }),
      ]);
      return { secrets: secrets.items, text: JSON.stringify([pods, events.items]) };
    };
    const shows = (where: string) =>
      [secret, Buffer.from(secret).toString('base64')].some((value) => where.includes(value));
    const exec = async (id: string, more: Record<string, unknown> = {}) =>
      (
        await client.post(`/v1/sandboxes/${id}/exec`, {
          cmd: 'sh',
          args: ['-c', 'echo "$TOKEN, $TWO, $PLAIN"'],
          ...more,
        })
      ).body.stdout;
    for (const start of ['first', 'second']) {
      expect(shows((await inCluster()).text)).toBe(false);
      await until(inCluster, ({ secrets }) => secrets.length === 0);
      expect(await exec(body.id), start).toBe(`${secret}, one $(TOKEN)\ntwo $$ lines, $(TOKEN)\n`);
      expect(await exec(body.id, { mask_secrets: true })).toBe('***, ***\n***, $(TOKEN)\n');
      if (start === 'second') break;
      const log = await wholeLog(
        client,
        body.id,
        (events) => textOf(events).includes('$(TOKEN)'),
        '?mask_secrets=true',
      );
      expect(textOf(log), start).toBe('***, ***\n***, $(TOKEN)\n');
      await client.post(`/v1/sandboxes/${body.id}/stop`, {});
      await untilStatus(client, body.id, 'stopped');
      await untilRunning(client, await client.post(`/v1/sandboxes/${body.id}/start`, {}));
    }
    await client.delete(`/v1/sandboxes/${body.id}`);
  });

  test('ends a start that a LimitRange of the cluster refuses, in its words', async () => {
    const { core, namespace: name } = namespace;
    await limitMemory(namespace, { max: '96Mi', refused: '128Mi' });
    const large = request('too-large', { resources: { vcpus: 1, memory_mib: 128 } });
    const { body } = await client.post('/v1/sandboxes', large, { start: true });
    const failed = await untilStatus(client, body.id, 'failed');
    expect(failed.body).toMatchObject({ stop_reason: 'start_failed', started_at: null });
    expect(failed.body.last_failure_message).toMatch(
      /^the cluster refused the Pod: .*maximum memory usage per Container is 96Mi, but limit is 128Mi/,
    );
    await core.deleteNamespacedLimitRange({ name: 'of-operator', namespace: name });
    await client.delete(`/v1/sandboxes/${body.id}`);
  });

  test('shows the words of the scheduler while no node has room, and starts when there is', async () => {
    const { running: others, waiting } = await fillNodes('large');
    expect(waiting.body.status).toBe('starting');
    expect(waiting.body.last_failure_message).toMatch(/nodes are available: .*Insufficient cpu/);
    for (const id of others) await client.delete(`/v1/sandboxes/${id}`);
    const { body } = await untilStatus(client, waiting.body.id, 'running');
    expect([body.status_reason, body.last_failure_message]).toEqual([null, null]);
    await client.delete(`/v1/sandboxes/${body.id}`);
  });

  test('a sandbox that waits for room can be stopped', async () => {
    const { running: others, waiting } = await fillNodes('full');
    const { id } = waiting.body;
    await client.post(`/v1/sandboxes/${id}/stop`, {});
    const { body } = await untilStatus(client, id, 'stopped');
    expect([body.started_at, body.last_failure_message]).toEqual([null, null]);
    for (const each of [...others, id]) await client.delete(`/v1/sandboxes/${each}`);
  });

  test.each([
    [
      'out_of_memory',
      'ran out of memory',
      { runtime: command('sh', '-c', 'sleep 1; x=a; while :; do x=$x$x; done'), ends: true },
    ],
  ] as const)('records the reason %s', async (reason, words, { ends, ...more }: any) => {
    const { body } = await client.post(
      '/v1/sandboxes',
      request(reason.replaceAll('_', '-'), { ...more, lifecycle: { ends_with_command: ends === true } }),
      { start: true },
    );
    const failed = await untilStatus(client, body.id, 'failed');
    expect(failed.body.last_failure_message).toContain(words);
    const { body: events } = await client.get('/v1/events', {
      resource_id: body.id,
      event_type: 'sandbox_failed',
    });
    const [event] = events.data;
    expect(event.payload.reason).toBe(reason);
  });

  test('records that the cluster deleted the Pod', async () => {
    const body = await start('deleted');
    const [pod] = await namespace.podsOf(body.id);
    await namespace.core.deleteNamespacedPod({
      name: pod!.metadata!.name!,
      namespace: namespace.namespace,
      gracePeriodSeconds: 1,
    });
    const failed = await untilStatus(client, body.id, 'failed');
    expect(failed.body.last_failure_message).toContain('the cluster deleted the Pod');
    expect(failed.body.stopped_at >= failed.body.started_at).toBe(true);
    await untilNoPod(body.id);
  });
});
