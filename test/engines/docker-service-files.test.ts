import type Docker from 'dockerode';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { containerOf, describeDocker, docker, execIn, IMAGE, makeImage } from '../support/docker.js';
import { startTestService, type TestService } from '../support/service.js';

describeDocker('the files of the service in a sandbox', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService({ ...onDocker(), settings: { stopGraceMs: 0 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
  });

  let count = 0;
  async function start(runtime: object): Promise<string> {
    const body = {
      name: `files-${(count += 1)}`,
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      resources: { vcpus: 1, memory_mib: 32 },
      runtime,
    };
    const query = { start: true, wait_for: 'running', wait_timeout: 120 };
    const made = await client.post('/v1/sandboxes', body, query);
    expect(made.body.status, made.text).toBe('running');
    return made.body.id;
  }
  const sh = (id: string, script: string) => execIn(id, 'sh', '-c', `exec 2>&1; ${script}`);

  test('stay where they are, whatever a guest moves', async () => {
    const id = await start({ scripts: { greet: 'echo hello' } });
    for (const attempt of [
      'mv /.sandkeep /x',
      'rm -r /.sandkeep',
      'mv /.sandkeep/bin /.sandkeep/x',
      'mkfifo /.sandkeep/bin/pipe',
      'umount /.sandkeep',
      'mount -o bind /tmp /.sandkeep',
      'mount -o remount,rw /.sandkeep',
      'unshare -m mv /.sandkeep /x',
    ]) {
      expect(await sh(id, `busybox ${attempt} || echo refused`), attempt).toMatch(/refused\n$/);
    }
    const said = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'greet' });
    expect(said.body.stdout, said.text).toBe('hello\n');
  });

  test('are in a container of an earlier release, which has a mount for each program', async () => {
    // With scripts the next start would make another container, because this one has not run. Without a command the
    // service would open the agent at the start.
    const id = await start({ cmd: ['sleep', '1000'] });
    await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped' });
    const made = (await containerOf(id))!;
    const { Name, Config, HostConfig } = await made.inspect();
    await made.remove();
    const Mounts = HostConfig.Mounts!.flatMap((mount) => {
      if (mount.Target !== '/.sandkeep') return [mount];
      return ['init', 'agent'].map((program) => ({
        ...mount,
        Source: join(dirname(mount.Source), program),
        Target: `/.sandkeep/bin/${program}`,
      }));
    });
    expect(Mounts.length).toBe(HostConfig.Mounts!.length + 1);
    await mkdir(dirname(Mounts[0]!.Source), { recursive: true });
    let old: Docker.Container;
    try {
      for (const { Source } of Mounts) await writeFile(Source, '');
      const options = { ...Config, Volumes: {}, HostConfig: { ...HostConfig, Mounts } };
      old = await docker.createContainer({ ...options, name: Name.slice(1) });
    } finally {
      await rm(dirname(Mounts[0]!.Source), { recursive: true });
    }
    const { body } = await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
    expect(body.status, JSON.stringify(body)).toBe('running');
    expect((await containerOf(id))!.id.startsWith(old.id)).toBe(true);
    // In such a container a guest can still move them. The next start brings them back.
    await sh(id, 'busybox mv /.sandkeep /moved');
    const gone = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'true' });
    expect([gone.status, gone.body.error?.details], gone.text).toEqual([422, { kind: 'not_found' }]);
    expect(gone.body.error.message).toContain('start the sandbox again');
    await client.post(`/v1/sandboxes/${id}/restart`, {}, { wait_for: 'running' });
    const said = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'echo', args: ['hello'] });
    expect(said.body.stdout, said.text).toBe('hello\n');
    expect((await client.delete(`/v1/sandboxes/${id}`)).status).toBe(200);
  });
});
