import { mkdtempSync, rmSync } from 'node:fs';
import {
  createServer,
  request as ask,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { containerOf, describeDocker, execIn, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const request = (name: string, more: object = {}) => ({
  name,
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 16 },
  network: { enabled: false },
  ...more,
});

describeDocker('a sandbox for which the engine would hang', () => {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-hanging-'));
  const socketPath = join(directory, 'engine.sock');
  /** The calls of the service for one container that the proxy leaves without an answer. */
  let hangs: ((call: string) => boolean) | undefined;
  let held: (() => void)[] = [];
  let engine: Server;
  let service: TestService;
  let attacker: Client;
  let other: Client;

  beforeAll(async () => {
    makeImage();
    engine = createServer(carry).listen(socketPath);
    engine.on('upgrade', (incoming: IncomingMessage, near, head) => {
      const { method, url: path, headers } = incoming;
      const onward = ask({ socketPath: SOCKET, method: method!, path: path!, headers });
      onward.on('upgrade', (answer, far, first) => {
        const upgrade = answer.headers.upgrade ?? 'tcp';
        near.write(`HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n\r\n`);
        near.write(first);
        near.pipe(far).pipe(near);
        near.on('error', () => far.destroy());
        far.on('error', () => near.destroy());
      });
      onward.end(head);
    });
    service = await startTestService({
      ...onDocker({ socketPath, capacity: { vcpus: 100 } }),
      settings: { stopGraceMs: 0 },
    });
    [attacker, other] = [await service.newOrg(), await service.newOrg()];
  });
  afterAll(async () => {
    release();
    await destroyAll(service, attacker, other);
    await service.close();
    engine.closeAllConnections();
    engine.close();
    rmSync(directory, { recursive: true });
  });

  function carry(incoming: IncomingMessage, answer: ServerResponse): void {
    const { method, url: path, headers } = incoming;
    const forward = () => {
      const onward = ask({ socketPath: SOCKET, method: method!, path: path!, headers }, (back) => {
        answer.writeHead(back.statusCode!, back.headers);
        back.pipe(answer);
      });
      onward.on('error', () => answer.destroy());
      incoming.pipe(onward);
    };
    if (hangs?.(`${method} ${path}`)) held.push(forward);
    else forward();
  }

  function release(): void {
    hangs = undefined;
    for (const forward of held) forward();
    held = [];
  }

  const run = async (client: Client, name: string, more?: object) => {
    const { body } = await client.post('/v1/sandboxes', request(name, more), { start: true });
    await untilStatus(client, body.id, 'running', 20_000);
    return body.id as string;
  };
  const stop = async (client: Client, id: string) => {
    await client.post(`/v1/sandboxes/${id}/stop`);
    await untilStatus(client, id, 'stopped', 20_000);
  };
  const tryToStart = async (id: string) => {
    await attacker.post(`/v1/sandboxes/${id}/start`);
    return until(
      async () => (await attacker.get(`/v1/sandboxes/${id}`)).body,
      ({ status }) => status !== 'starting',
      30_000,
    );
  };

  describe('by files of its disk', () => {
    test.each([
      ['a pipe', 'rm -f /etc/passwd; mkfifo /etc/passwd', 'is a pipe or a device'],
      ['a pipe behind a link', 'mkfifo /srv/p; ln -sf /srv/p /etc/group', 'is a pipe or a device'],
      ['a sparse file', 'rm -f /etc/passwd; truncate -s 8G /etc/passwd', 'has more than'],
      ['a directory', 'rm -f /etc/group; mkdir /etc/group', 'is a directory'],
      [
        'a pipe that a mount of the service hides',
        'mv /.sandkeep /moved; mkdir -p /.sandkeep/bin; ln -s /etc/passwd /.sandkeep/bin/init; rm -f /etc/passwd; mkfifo /etc/passwd',
        'is hidden by the mount at /.sandkeep/bin/init',
      ],
      [
        'a pipe that a mount of the caller hides',
        'mv /data /moved; ln -s / /data; rm -f /etc/passwd; mkfifo /etc/passwd',
        /is hidden by the mount at \/data\/etc|a mount cannot be placed/,
      ],
    ])('%s is found before the engine opens it', async (name, command, fault) => {
      const { body: volume } = await attacker.post('/v1/volumes', {
        name: `for ${name}`.replaceAll(' ', '-'),
      });
      const mounts = [{ type: 'named', name: volume.name, guest: '/data/etc' }];
      const id = await run(attacker, `hostile-${name.replaceAll(' ', '-')}`, { mounts });
      const applets = 'for a in mkfifo ln mv truncate mkdir; do busybox ln -s busybox /bin/$a; done';
      await execIn(id, '/bin/busybox', 'sh', '-c', `PATH=/bin; ${applets}; ${command}`);
      await stop(attacker, id);
      const ended = await tryToStart(id);
      expect(ended.status).toBe('failed');
      expect(ended.last_failure_message).toMatch(fault);
      // The engine answers for it, and lets it go.
      await (await containerOf(id))!.inspect();
      expect((await service.runtime.list()).some(({ state }) => state === 'unknown')).toBe(false);
    });

    test('a disk without them starts again', async () => {
      const id = await run(attacker, 'plain');
      await stop(attacker, id);
      expect((await tryToStart(id)).status).toBe('running');
    });
  });

  test.each([
    ['start', (id: string) => ({ begin: `/v1/sandboxes/${id}/start`, status: 'stopped' })],
    ['json', (id: string) => ({ begin: `/v1/sandboxes/${id}/start`, status: 'stopped' })],
    ['rename', (id: string) => ({ begin: `/v1/sandboxes/${id}/start`, status: 'stopped' })],
    ['archive', (id: string) => ({ begin: `/v1/sandboxes/${id}/start`, status: 'stopped' })],
    ['kill', (id: string) => ({ begin: `/v1/sandboxes/${id}/stop`, status: 'running' })],
    ['', (id: string) => ({ begin: `/v1/sandboxes/${id}`, status: 'stopped' })],
  ])('a hanging call "%s" holds up no other sandbox', async (call, stepOf) => {
    const id = await run(attacker, `hanging-${call}`);
    const { begin, status } = stepOf(id);
    if (status === 'stopped') await stop(attacker, id);
    const container = await containerOf(id);
    // As with the lock of a container: whatever follows the call hangs too.
    let hasBegun = false;
    hangs = (asked) => {
      if (!asked.includes(`/containers/${container!.id}`)) return false;
      hasBegun ||= asked.includes(`/${call}`) && (call !== '' || asked.startsWith('DELETE'));
      return hasBegun;
    };
    if (call === '') await attacker.delete(begin);
    else await attacker.post(begin);
    await until(
      () => Promise.resolve(held.length),
      (count) => count > 0,
      10_000,
    );
    const began = performance.now();
    const others = await Promise.all(['a', 'b'].map((name) => run(other, `${name}-${call}`)));
    // Without isolation each pass waited a minute for the engine.
    expect(performance.now() - began).toBeLessThan(45_000);
    for (const each of others) await stop(other, each);
    release();
    if (call === '') return;
    await untilStatus(attacker, id, status === 'stopped' ? 'running' : 'stopped', 20_000);
  });
});
