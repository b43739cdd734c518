import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import {
  addressOf,
  end,
  expectReached,
  holderOf,
  makeWorld,
  pidOf,
  PRIVATE,
  PUBLIC,
  reaches,
  removeWorld,
  rulesIn,
  startWith,
  WORLD,
} from '../support/docker-network.js';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import { allEvents, openEvents } from '../support/event-stream.js';
import { describeNetns, NetnsPeer } from '../support/netns.js';
import { until, untilStatus } from '../support/polling.js';
import type { TestService } from '../support/service.js';

const COUNT = 2;
const LABEL = 'dev.sandkeep.holder-of';

describeDocker('networks that are prepared for sandboxes', () => {
  describeNetns('with the firewall tools', () => {
    let service: TestService;
    let client: Client;
    let instanceId: string;
    let world: NetnsPeer;

    beforeAll(async () => {
      makeImage();
      makeWorld({ hasMetadata: false });
      world = await NetnsPeer.start(WORLD, [80], PUBLIC);
      service = await startWith({ preparedNetworks: COUNT });
      const { rows } = await service.ctx.pool.query<{ id: string }>('select id from instance');
      instanceId = rows[0]!.id;
      client = await service.newOrg();
    });
    afterAll(async () => {
      await end(service, client);
      await world.stop();
      removeWorld();
    });

    const prepared = async () =>
      (await docker.listContainers({ filters: { label: [`dev.sandkeep.instance=${instanceId}`] } })).filter(
        ({ Names }) => Names[0]!.startsWith('/sandkeep-net-prepared-'),
      );
    const untilPrepared = async () => until(prepared, (found) => found.length === COUNT, 60_000);

    const create = async (name: string, more: Record<string, unknown> = {}) => {
      const { body } = await client.post(
        '/v1/sandboxes',
        { name, image: { type: 'oci', reference: IMAGE }, pull_policy: 'never', ...more },
        { start: true, wait_for: 'running', wait_timeout: 120 },
      );
      expect(body).toMatchObject({ status: 'running' });
      return body as { id: string };
    };
    const output = async (id: string, ...[cmd, ...args]: string[]) =>
      (await client.post(`/v1/sandboxes/${id}/exec`, { cmd, args })).body.stdout as string;
    const printed = async (id: string) => {
      const events = await allEvents((await openEvents(client, `/v1/sandboxes/${id}/logs`)).events);
      return events.filter(({ event }) => event === 'log').map(({ data }) => data.text);
    };

    test('a start takes one, and another one is prepared', async () => {
      const before = (await untilPrepared()).map(({ Id }) => Id);
      const { id } = await create('taken', { runtime: { cmd: ['busybox', 'hostname'] } });
      expect(before).toContain((await holderOf(id))!.Id);
      expect((await holderOf(id))!.Config.Labels[LABEL]).toMatch(/^prepared-/);
      // The command itself saw the name of its sandbox.
      await client.post(`/v1/sandboxes/${id}/stop`);
      await untilStatus(client, id, 'stopped');
      // The engine reports an end before the last output is written.
      await until(
        () => printed(id),
        (texts) => texts.length > 0,
      );
      expect(await printed(id)).toEqual([`${id}\n`]);
      await client.post(`/v1/sandboxes/${id}/start`, undefined, { wait_for: 'running', wait_timeout: 120 });
      expect(await output(id, 'busybox', 'hostname')).toBe(`${id}\n`);
      expect(await output(id, 'busybox', 'cat', '/etc/hosts')).toContain(`${await addressOf(id)}\t${id}`);
      const after = (await untilPrepared()).map(({ Id }) => Id);
      expect(after).not.toContain((await holderOf(id))!.Id);
    });

    test('its rules are those of the sandbox', async () => {
      await untilPrepared();
      const { id } = await create('filtered', { runtime: { hostname: 'chosen' } });
      expect(rulesIn(await pidOf(id))).toContain('inet sandkeep');
      expect(await output(id, 'busybox', 'hostname')).toBe('chosen\n');
      await expectReached(id, PUBLIC, 80);
      expect(await reaches(id, PRIVATE, 80)).toBe(false);
    });

    test('published ports need a network of their own', async () => {
      const before = (await untilPrepared()).map(({ Id }) => Id);
      const { id } = await create('published', { network: { ports: [{ guest_port: 80 }] } });
      expect(before).not.toContain((await holderOf(id))!.Id);
    });

    test('a removed network is not taken', async () => {
      for (const { Id } of await untilPrepared()) await docker.getContainer(Id).remove({ force: true });
      const { id } = await create('without');
      expect((await holderOf(id))!.State.Running).toBe(true);
      await untilPrepared();
    });

    test('a network that a killed service left is removed', async () => {
      await untilPrepared();
      const [running] = await prepared();
      const left = await docker.createContainer({
        name: 'sandkeep-net-prepared-000000000000',
        Image: IMAGE,
        Cmd: ['sleep', '600'],
        Labels: running!.Labels,
        HostConfig: { NetworkMode: 'none' },
      });
      // The service may have found and removed it by now.
      await left
        .start()
        .catch((error: { statusCode?: number }) => expect([404, 409]).toContain(error.statusCode));
      const gone = await until(
        async () =>
          left.inspect().then(
            () => false,
            () => true,
          ),
        (isGone) => isGone,
      );
      expect(gone).toBe(true);
      await untilPrepared();
    });

    test('starts beyond the prepared networks get networks of their own', async () => {
      await untilPrepared();
      const ids = await Promise.all(
        ['a', 'b', 'c', 'd'].map(async (name) => (await create(`burst-${name}`)).id),
      );
      const addresses = await Promise.all(ids.map(async (id) => addressOf(id)));
      expect(new Set(addresses).size).toBe(ids.length);
      for (const id of ids) expect(await output(id, 'busybox', 'hostname')).toBe(`${id}\n`);
    });

    test('the network of a stopped sandbox waits for its next start', async () => {
      const { id } = await create('again');
      const first = await pidOf(id);
      await client.post(`/v1/sandboxes/${id}/stop`);
      await untilStatus(client, id, 'stopped');
      // Two lists of the engine later.
      await new Promise((resolve) => setTimeout(resolve, 2_500));
      expect(await pidOf(id)).toBe(first);
      await client.post(`/v1/sandboxes/${id}/start`, undefined, { wait_for: 'running', wait_timeout: 120 });
      expect(await pidOf(id)).toBe(first);
      expect(await output(id, 'busybox', 'hostname')).toBe(`${id}\n`);
      expect(await reaches(id, PRIVATE, 80)).toBe(false);
      await client.delete(`/v1/sandboxes/${id}`);
      await until(
        async () => holderOf(id),
        (found) => found === undefined,
      );
    });

    test('only the latest stopped sandboxes keep their networks', async () => {
      const ids: string[] = [];
      for (const name of ['one', 'two', 'three']) {
        const { id } = await create(`kept-${name}`);
        ids.push(id);
        await client.post(`/v1/sandboxes/${id}/stop`);
        await untilStatus(client, id, 'stopped');
        await until(
          async () => service.ctx.runtime.list(),
          () => true,
        );
      }
      const isUp = async () => Promise.all(ids.map(async (id) => (await holderOf(id))!.State.Running));
      await until(isUp, (up) => !up[0]!);
      expect(await isUp()).toEqual([false, true, true]);
    });
  });
});
