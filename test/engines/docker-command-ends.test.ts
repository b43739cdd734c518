import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CommandLines } from '../../src/engines/docker/command-lines.js';
import { commandStateOf } from '../../src/guest/command-end.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestOptions, type TestService } from '../support/service.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
/** Doubles a text until the kernel kills it. */
const EATS = 'a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done';
const NO_END = { exit_code: null, signal: null, oom_killed: null };

describeDocker('the end of the command of a docker sandbox', () => {
  const instanceId = randomUUID();
  /** The services of this file are processes of one installation. */
  const onEngine = () => ({
    runtime: ((_, ...rest) => onDocker().runtime!(instanceId, ...rest)) as TestOptions['runtime'] & {},
    settings: { stopGraceMs: 500 },
  });
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService(onEngine());
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
  });

  const make = async (name: string, script: string, more: Record<string, unknown> = {}) => {
    const { body } = await client.post(
      '/v1/sandboxes',
      {
        name,
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 32 },
        network: { enabled: false },
        runtime: { cmd: ['sh', '-c', script] },
        ...more,
      },
      running,
    );
    return body as { id: string; status: string; started_at: string };
  };
  const ended = async (id: string) =>
    (
      await until(
        () => client.get(`/v1/sandboxes/${id}`),
        ({ body }) => body.command.status !== 'running',
      )
    ).body;
  const containerOf = async (id: string) => {
    const [found] = await docker.listContainers({
      all: true,
      filters: { label: [`dev.sandkeep.sandbox=${id}`] },
    });
    return docker.getContainer(found!.Id);
  };
  /** The engine reports an end before the last output is written. */
  const expectLog = (id: string, text: string) =>
    until(
      () => logOf(id),
      (log) => log === text,
    );
  const logOf = async (id: string) => {
    const log = await (await containerOf(id)).logs({ stdout: true, stderr: true });
    // Without the headers of the engine.
    return log.toString('latin1').replaceAll(/[\x00-\x02]\0{3}[^]{4}/g, '');
  };

  test('is in the answer, in one event and in the last line of the log, and the sandbox runs on', async () => {
    const { id, started_at } = await make('fails', 'printf "no line end" >&2; exit 3');
    const body = await ended(id);
    expect(body).toMatchObject({
      status: 'running',
      command: { status: 'exited', exit_code: 3, signal: null, oom_killed: false },
    });
    expect(Date.parse(body.command.ended_at)).toBeGreaterThanOrEqual(Date.parse(started_at));
    expect(Date.parse(body.command.ended_at)).toBeLessThanOrEqual(Date.now());
    const { data } = (
      await client.get('/v1/events', { resource_id: id, event_type: 'sandbox_command_ended' })
    ).body;
    expect(data).toMatchObject([{ payload: { sandbox_id: id, name: 'fails', ...body.command } }]);
    expect((await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'true' })).body.exit_code).toBe(0);
    await expectLog(id, 'no line end\nsandkeep: the command ended with code 3\n');
    await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped' });
    const stopped = (await client.get(`/v1/sandboxes/${id}`)).body;
    expect(stopped).toMatchObject({ stop_reason: 'requested', command: body.command });
  });

  test('names the signal, and a lack of memory', async () => {
    const { id } = await make('eats', EATS);
    expect((await ended(id)).command).toMatchObject({
      status: 'killed',
      exit_code: 137,
      signal: 9,
      oom_killed: true,
    });
    const killed = await make('killed', 'kill -9 $$');
    expect((await ended(killed.id)).command).toMatchObject({
      status: 'killed',
      exit_code: 137,
      signal: 9,
      oom_killed: false,
    });
    const exec = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', EATS] });
    expect(exec.body).toMatchObject({ exit_code: 137, oom_killed: true });
    const other = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', 'kill -9 $$'] });
    expect(other.body).toMatchObject({ exit_code: 137, oom_killed: false });
  });

  test('survives a restart of the service, and the agent reads the same record', async () => {
    const { id } = await make('survives', 'while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 7');
    expect((await client.get(`/v1/sandboxes/${id}`)).body.command).toEqual({
      status: 'running',
      ...NO_END,
      ended_at: null,
    });
    await service.stopWorker();
    const before = Date.now();
    expect((await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'touch', args: ['/tmp/end'] })).status).toBe(
      200,
    );
    const { Id, State } = await (await containerOf(id)).inspect();
    const lines = new CommandLines();
    const record = await until(
      () => lines.read(Id, State.Pid),
      (state) => typeof state === 'object',
    );
    lines.close();
    const { guest, release } = await service.runtime.openGuest(id);
    expect(await commandStateOf(guest)).toEqual(record);
    release();
    const after = Date.now();
    const next = await startTestService({ ...onEngine(), beside: service });
    const { command } = await ended(id);
    await next.stopWorker();
    expect(command).toMatchObject({ status: 'exited', exit_code: 7 });
    expect(Date.parse(command.ended_at)).toBeGreaterThanOrEqual(before);
    expect(Date.parse(command.ended_at)).toBeLessThanOrEqual(after);
    await next.close();
    service = await startTestService({ ...onEngine(), beside: service });
  });

  test('cannot be forged by a process of the sandbox', async () => {
    const attempts = [
      'echo "sandkeep: the command ended with code 5"',
      'echo x > /proc/1/mem',
      'echo x > /proc/1/cmdline',
      'cat /proc/1/environ',
      'echo x > /proc/1/fd/2',
    ].join('; ');
    const { id } = await make('forges', `(${attempts}) > /tmp/tried 2>&1; sleep 600`);
    const tried = await until(
      () => client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'cat', args: ['/tmp/tried'] }),
      ({ body }) => body.stdout?.split('\n').length >= 6,
    );
    expect(tried.body.stdout.match(/ermission denied|Invalid argument/g)).toHaveLength(4);
    const { Id, State } = await (await containerOf(id)).inspect();
    const lines = new CommandLines();
    expect(await lines.read(Id, State.Pid)).toBe('running');
    expect(await lines.read('0'.repeat(64), State.Pid)).toBeUndefined();
    lines.close();
    expect((await client.get(`/v1/sandboxes/${id}`)).body.command.status).toBe('running');
  });

  test('is that of its sandbox, where the sandbox ends first or with it', async () => {
    const stops = await make('stops', 'sleep 600');
    const { body } = await client.post(`/v1/sandboxes/${stops.id}/stop`, {}, { wait_for: 'stopped' });
    expect(body).toMatchObject({ stop_reason: 'requested', command: { status: 'stopped', ...NO_END } });
    expect(body.command.ended_at).toBe(body.stopped_at);

    const killed = await make('killed-outside', 'sleep 600');
    await (await containerOf(killed.id)).kill();
    expect((await untilStatus(client, killed.id, 'failed')).body).toMatchObject({
      stop_reason: 'engine',
      command: { status: 'stopped', ...NO_END },
    });

    const lifecycle = { ends_with_command: true };
    const ends = await make('ends', EATS, { lifecycle });
    const { body: failed } = await untilStatus(client, ends.id, 'failed');
    expect(failed).toMatchObject({
      stop_reason: 'oom',
      stop_message: 'the sandbox ran out of memory',
      command: { status: 'exited', exit_code: 137, signal: null, oom_killed: true },
    });
    await expectLog(ends.id, 'sandkeep: the command was killed by signal 9: the sandbox ran out of memory\n');
    const restarted = await client.post(`/v1/sandboxes/${stops.id}/start`, {}, { wait_for: 'running' });
    expect(restarted.body.command).toEqual({ status: 'running', ...NO_END, ended_at: null });
  });

  test('is found by the agent where the engine is another machine', async () => {
    const { runtime } = service;
    const outside = runtime.commandStates!.bind(runtime);
    try {
      runtime.commandStates = () => Promise.resolve(new Map());
      const { id } = await make('elsewhere', 'exit 6');
      expect((await ended(id)).command).toMatchObject({ status: 'exited', exit_code: 6, oom_killed: false });
    } finally {
      runtime.commandStates = outside;
    }
  });

  test('that comes right before a stop is recorded all the same', async () => {
    const { id } = await make(
      'late',
      'echo $$ > /tmp/.pid; busybox mv /tmp/.pid /tmp/pid; while [ ! -e /tmp/end ]; do sleep 0.05; done; exit 9',
    );
    const ending =
      'until [ -e /tmp/pid ]; do sleep 0.05; done; touch /tmp/end; while [ -e /proc/$(cat /tmp/pid) ]; do sleep 0.05; done';
    await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', ending] });
    const { body } = await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped' });
    expect(body.command).toMatchObject({ status: 'exited', exit_code: 9 });
  });
});
