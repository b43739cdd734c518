import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeClient } from '../support/client.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { describeNetns } from '../support/netns.js';
import { until as untilValue } from '../support/polling.js';
import { cleanUp, launch, makeFolder, ready, stop } from '../support/processes.js';
import { openOwnEngine, type OwnEngine } from './support/docker-engine.js';

describeDocker('published ports after the engine was killed', () => {
  describeNetns('with the firewall tools', () => {
    let engine: OwnEngine;
    beforeAll(async () => {
      engine = await openOwnEngine();
      makeImage(engine.socket);
      openLoopback();
    });
    afterAll(() => engine.close());

    /** The engine is in a network namespace of its own, and so are the ports that it opens. */
    function beside(...command: string[]): string {
      const pid = readFileSync(join(dirname(engine.socket), 'docker.pid'), 'utf8').trim();
      const options = { input: '', encoding: 'utf8', timeout: 60_000 } as const;
      return spawnSync('nsenter', [`--net=/proc/${pid}/ns/net`, ...command], options).stdout;
    }
    const answers = (port: number) =>
      beside('busybox', 'nc', '-w', '2', '127.0.0.2', `${port}`).includes('reached');
    const openLoopback = () => beside('ip', 'link', 'set', 'lo', 'up');
    const settled = async (port: number, open: boolean) =>
      untilValue(
        async () => Promise.resolve(answers(port)),
        (found) => found === open,
      );

    test('come back with the next run, and nothing of the killed one has them', async () => {
      const folder = makeFolder();
      const options = ['--runtime', 'docker', '--docker-socket', engine.socket, '--preview-host', 'none'];
      const dataDir = join(folder, 'data');
      try {
        const served = await ready(
          launch(['serve', '--json', '--port', '0', '--data-dir', dataDir, ...options]),
          dataDir,
        );
        const org = { id: '', name: '', slug: '' };
        const client = makeClient(served.url, { org, key: served.firstKey!, keyId: '' });
        const request = {
          name: 'web',
          image: { type: 'oci', reference: IMAGE },
          pull_policy: 'never',
          runtime: { cmd: ['busybox', 'nc', '-ll', '-p', '8080', '-e', '/bin/busybox', 'echo', 'reached'] },
          network: { ports: [{ guest_port: 8080 }] },
        };
        const running = { start: true, wait_for: 'running', wait_timeout: 120 };
        const { body, text } = await client.post('/v1/sandboxes', request, running);
        expect(body.status, text).toBe('running');
        const port = body.spec.network.ports[0].host_port as number;
        await settled(port, true);
        await engine.kill();
        await engine.start();
        openLoopback();
        await untilValue(
          async () => (await client.get(`/v1/sandboxes/${body.id}`)).body.status as string,
          (status) => status === 'stopped' || status === 'failed',
        );
        const again = await client.post(`/v1/sandboxes/${body.id}/start`, undefined, { wait_for: 'running' });
        expect(again.body.spec.network.ports[0].host_port).toBe(port);
        await settled(port, true);
        await client.delete(`/v1/sandboxes/${body.id}`);
        await settled(port, false);
        await untilValue(
          async () => engine.docker.listContainers({ all: true }),
          (containers) => !containers.some(({ Labels }) => Object.values(Labels).includes(body.id)),
        );
        await stop(served);
      } finally {
        await cleanUp(folder);
      }
    });
  });
});
