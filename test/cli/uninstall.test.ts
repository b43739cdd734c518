import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { pack } from 'tar-stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { GuestInit } from '../../src/engines/docker/guest-init.js';
import { liveWorkers } from '../../src/workers/queries.js';
import { openOwnEngine, type OwnEngine } from '../crash/support/docker-engine.js';
import { expectRefused, run, urlOf, runJson } from '../support/cli.js';
import { makeClient } from '../support/client.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { openEngineRelay } from '../support/engine-relay.js';
import { cleanUp, launch, makeFolder, ready, stop, type Served } from '../support/processes.js';
import { startTestService } from '../support/service.js';

const INSTANCE_LABEL = 'dev.sandkeep.instance';
const SHARED_LABEL = 'dev.sandkeep.init';
const OTHER = randomUUID();

/** The processes in a network namespace. With the last one, its links and rules are gone. */
function usersOf(namespace: string): number[] {
  const inside = (pid: string) => {
    try {
      return readlinkSync(`/proc/${pid}/ns/net`) === namespace;
    } catch {
      return false;
    }
  };
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && inside(name))
    .map(Number);
}

describeDocker('sandkeep uninstall', () => {
  let engine: OwnEngine;
  let folder: string;
  let dataDir: string;
  beforeAll(async () => {
    engine = await openOwnEngine();
    makeImage(engine.socket);
    folder = makeFolder();
    dataDir = join(folder, 'data');
  });
  afterAll(async () => {
    await cleanUp(folder);
    await engine.close();
  });

  const uninstall = (...more: string[]) =>
    run(['uninstall', '--data-dir', dataDir, '--docker-socket', engine.socket, ...more]);

  async function serve(): Promise<Served> {
    const args = ['serve', '--json', '--port', '0', '--data-dir', dataDir, '--log-level', 'warn'];
    return ready(launch([...args, '--runtime', 'docker', '--docker-socket', engine.socket]), dataDir);
  }

  /** An image with the label of the service's own. */
  async function importImage(repo: string): Promise<void> {
    const archive = pack();
    archive.entry({ name: 'mark' }, repo);
    archive.finalize();
    const changes = [`LABEL ${SHARED_LABEL}=test`];
    const answer = await engine.docker.importImage(archive, { repo, tag: '1', changes });
    answer.resume();
    await finished(answer);
  }

  /** A container of another installation. It is never started. */
  async function containerOfOther(name: string, image: string, volume?: string): Promise<Docker.Container> {
    const mount = { Type: 'volume' as const, Source: volume ?? '', Target: '/shared', ReadOnly: true };
    return engine.docker.createContainer({
      name,
      Image: image,
      Cmd: ['/none'],
      Labels: { [INSTANCE_LABEL]: OTHER },
      HostConfig: { NetworkMode: 'none', Mounts: volume === undefined ? [] : [mount] },
    });
  }

  async function inEngine(): Promise<Record<'containers' | 'networks' | 'volumes' | 'images', string[]>> {
    const { Volumes } = await engine.docker.listVolumes({ filters: { label: [SHARED_LABEL] } });
    const containers = await engine.docker.listContainers({ all: true });
    const networks = await engine.docker.listNetworks({ filters: { label: [INSTANCE_LABEL] } });
    const images = await engine.docker.listImages({ filters: { label: [SHARED_LABEL] } });
    return {
      containers: containers.map(({ Names }) => Names[0]!).toSorted(),
      volumes: Volumes.map(({ Name }) => Name),
      networks: networks.map(({ Labels }) => Labels![INSTANCE_LABEL]!).toSorted(),
      images: images.flatMap(({ RepoTags }) => RepoTags ?? []).toSorted(),
    };
  }

  test('refuses while a service runs, lists without --yes, and then removes only parts of the installation', async () => {
    const service = await serve();
    const client = makeClient(service.url, {
      org: { id: '', name: '', slug: '' },
      key: service.firstKey!,
      keyId: '',
    });
    const spec = { image: { type: 'oci', reference: IMAGE }, pull_policy: 'never' };
    const request = {
      ...spec,
      name: 'kept-up',
      resources: { memory_mib: 32 },
      runtime: { cmd: ['sleep', '1000'] },
      // It needs the gateway, with a container and a network namespace of its own.
      network: {
        policy: {
          rules: [{ direction: 'egress', action: 'allow', destination: { domain: 'one.example' } }],
        },
      },
    };
    const made = await client.post('/v1/sandboxes', request, {
      start: true,
      wait_for: 'running',
      wait_timeout: 120,
    });
    expect(made.body.status).toBe('running');
    expectRefused(
      await uninstall('--yes'),
      `is in use by "sandkeep serve" (process ${service.pid}): stop it`,
    );
    expect(await stop(service)).toBe(0);

    await importImage('sandkeep/unused');
    await importImage('sandkeep/used');
    await importImage('somebody/elses');
    await importImage('sandkeep/pulled');
    const other = await containerOfOther('other', 'sandkeep/used:1');
    const { volumes } = await inEngine();
    expect(volumes).toEqual([expect.stringMatching(/^sandkeep-init-[0-9a-f]{12}$/)]);
    const shared = volumes[0]!;
    const program = shared.replace('sandkeep-init-', 'sandkeep/init:');
    const sharer = await containerOfOther('sharer', 'sandkeep/used:1', shared);
    await engine.docker.createNetwork({
      Name: 'other',
      Driver: 'bridge',
      Labels: { [INSTANCE_LABEL]: OTHER },
    });
    const before = await inEngine();
    const holder = before.containers.find((name) => name.startsWith('/sandkeep-gateway-'))!;
    const { State } = await engine.docker.getContainer(holder.slice(1)).inspect();
    const namespace = readlinkSync(`/proc/${State.Pid}/ns/net`);
    expect(usersOf(namespace)).toContain(State.Pid);
    expect(before.images).toContain(program);

    const listed = await uninstall();
    expect([listed.code, listed.err]).toEqual([
      1,
      'sandkeep: nothing was removed: repeat the command with --yes\n',
    ]);
    expect(listed.out).toContain(`container  sandkeep-kept-up-${made.body.id.slice(-8)} (`);
    expect(listed.out).toContain('image      sandkeep/unused:1');
    expect(listed.out).toContain('sandkeep/used:1 stays: another installation uses it.');
    // It has no mark of an installation.
    for (const name of [shared, program, 'sandkeep/pulled:1']) {
      expect(listed.out).toContain(`${name} stays: another installation uses it.`);
    }
    expect(listed.out).not.toContain('somebody/elses');
    expect(await inEngine()).toEqual(before);
    expect((await uninstall('--json')).code).toBe(1);
    expect(await inEngine()).toEqual(before);

    const instance = /^The installation (\S+) has/.exec(listed.out)![1]!;
    const labels = { [INSTANCE_LABEL]: instance };
    await engine.docker.createNetwork({ Name: 'left-over', Driver: 'bridge', Labels: labels });
    expect((await uninstall()).out).toContain('network    left-over');

    const removed = await uninstall('--yes');
    expect(removed).toMatchObject({ code: 0, err: '' });
    expect(usersOf(namespace)).toEqual([]);
    expect(removed.out).toContain(`Kept: ${dataDir} (the database, the keys) and ${dataDir}/volumes`);
    expect(removed.out).toContain(`To delete them too: rm -r ${dataDir}\n`);
    expect(await inEngine()).toEqual({
      containers: ['/other', `/${shared}`, '/sharer'].toSorted(),
      networks: [OTHER],
      volumes: [shared],
      images: [program, 'sandkeep/pulled:1', 'sandkeep/used:1', 'somebody/elses:1'].toSorted(),
    });
    expect(existsSync(join(dataDir, 'postgres'))).toBe(true);
    expect((await engine.docker.getImage(IMAGE).inspect()).Id).toBeTruthy();

    await sharer.remove();
    await other.remove();
    const alone = await uninstall('--yes');
    expect(alone).toMatchObject({ code: 0, err: '' });
    expect(alone.out).toContain('image      sandkeep/pulled:1 (pulled)');
    expect(await inEngine()).toEqual({
      containers: [],
      networks: [OTHER],
      volumes: [],
      images: ['somebody/elses:1'],
    });

    const again = await uninstall();
    expect([again.code, again.out]).toEqual([
      0,
      expect.stringMatching(/^The Docker engine has nothing of the installation /),
    ]);
  });

  /** Runs the command while `act` is called before one of its requests to the engine. */
  async function uninstallBeside(isMoment: (request: string) => boolean, act: () => Promise<void>) {
    const socket = join(folder, `${randomUUID()}.sock`);
    let acted = false;
    const relay = await openEngineRelay(socket, engine.socket, async ({ method, url }) => {
      if (acted || !isMoment(`${method} ${url}`)) return;
      acted = true;
      await act();
    });
    try {
      const place = ['--data-dir', dataDir, '--docker-socket', socket];
      const ended = await run(['uninstall', '--yes', '--json', ...place]);
      expect(acted).toBe(true);
      expect(ended).toMatchObject({ code: 0, err: '' });
      return JSON.parse(ended.out) as Record<'removed' | 'in_use', unknown>;
    } finally {
      relay.close();
    }
  }

  test('succeeds while another installation makes shared objects again, or begins to use them', async () => {
    const { Architecture } = (await engine.docker.info()) as { Architecture: string };
    const init = new GuestInit(engine.docker, Architecture);
    const container: unknown = expect.objectContaining({ name: init.volume });
    const volume = { id: init.volume, name: init.volume };
    const image: unknown = expect.objectContaining({ name: init.image });
    const nothing = { networks: [], pulledImages: [] };

    await init.ensureVolume();
    const begun = await uninstallBeside(
      (request) => /^DELETE .*\/volumes\//.test(request),
      async () => init.ensureVolume(),
    );
    expect(begun).toMatchObject({
      removed: { containers: [container], volumes: [], images: [], ...nothing },
      in_use: [volume, image],
    });
    const used = await inEngine();
    expect(used).toMatchObject({ containers: [`/${init.volume}`], volumes: [init.volume] });
    expect(used.images).toContain(init.image);

    let removed = false;
    const again = await uninstallBeside(
      (request) => {
        const isNext = removed;
        removed ||= /^DELETE .*\/images\//.test(request);
        return isNext;
      },
      async () => init.ensureVolume(),
    );
    expect(again).toMatchObject({
      removed: { containers: [container], volumes: [volume], images: [image], ...nothing },
      in_use: [],
    });
    expect(await inEngine()).toEqual(used);
  });

  test('says what to do when the engine does not give up a network', async () => {
    const place = ['--data-dir', dataDir, '--docker-socket', engine.socket];
    const { instance } = await runJson(['uninstall', '--yes', ...place]);
    const name = `sandkeep-${instance}`;
    await engine.docker.createNetwork({ Name: name, Labels: { [INSTANCE_LABEL]: instance } });
    const foreign = await engine.docker.createContainer({
      Image: IMAGE,
      Cmd: ['sleep', '1000'],
      HostConfig: { NetworkMode: name },
    });
    await foreign.start();
    expectRefused(
      await uninstall('--yes', '--json'),
      `Remove those that "docker network inspect ${name}" names`,
    );
    await foreign.remove({ force: true });
    expect((await uninstall('--yes')).code).toBe(0);
    expect((await inEngine()).networks).not.toContain(instance);
  });

  test('refuses on an external database while a worker has its lease', async () => {
    const service = await startTestService();
    try {
      await expect.poll(() => liveWorkers(service.ctx.pool)).toHaveLength(1);
      const where = ['--database-url', urlOf(service.database), '--docker-socket', engine.socket];
      expectRefused(
        await run(['uninstall', '--yes', ...where]),
        /^sandkeep: a service runs on this database/,
      );
    } finally {
      await service.close();
    }
  });

  test('explains a missing answer of the engine', async () => {
    const refused = await run([
      'uninstall',
      '--data-dir',
      dataDir,
      '--docker-socket',
      '/nonexistent/docker.sock',
    ]);
    expectRefused(refused, 'no Docker engine answers on /nonexistent/docker.sock');
  });
});
