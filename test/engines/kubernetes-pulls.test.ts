import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll } from '../support/docker-service.js';
import {
  containerStatus,
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  textOf,
  untilRunning,
  wholeLog,
  type TestNamespace,
} from '../support/kubernetes.js';
import { until, untilStatus } from '../support/polling.js';
import {
  remoteImage,
  remoteImageOf,
  serveRegistry,
  type PrivateRegistry,
  type RemoteImage,
} from '../support/private-registry.js';
import { startTestService, type TestService } from '../support/service.js';
import { ClusterParts } from '../crash/support/cluster-parts.js';
import { forwardInto } from '../crash/support/forward-into-node.js';

/** The directory of a cluster whose nodes are network namespaces of this machine. */
const PARTS = process.env['SANDKEEP_TEST_CLUSTER_PARTS'];
const credentials = { username: 'puller', password: 'canary-of-the-registry' };
const registryFields = { mode: 'inline', ...credentials };

if (PARTS === undefined) {
  console.warn('pulls by real nodes are SKIPPED: SANDKEEP_TEST_CLUSTER_PARTS names no cluster');
}

(PARTS === undefined ? describe.skip : describeKubernetes)(
  'the entrypoint of an image that nodes pull',
  () => {
    const parts = new ClusterParts(PARTS ?? '');
    let namespace: TestNamespace;
    let registry: PrivateRegistry;
    let forwards: (() => void)[];
    let service: TestService;
    let client: Client;
    let image: string;

    beforeAll(async () => {
      registry = await serveRegistry(await imageWith('older'), { credentials });
      forwards = await Promise.all(parts.nodes.map((node) => forwardInto(node, registry.port)));
      image = `${registry.host}/team/app:1`;
      namespace = await openNamespace();
      service = await startTestService({ ...namespace.service(), settings: { stopGraceMs: 1_000 } });
      client = await service.newOrg();
    });
    afterAll(async () => {
      await destroyAll(service, client);
      await service.close();
      await namespace.remove();
      for (const end of forwards) end();
      await registry.close();
    });

    const create = async (name: string, more: Record<string, unknown> = {}) => {
      const { body, text } = await client.post(
        '/v1/sandboxes',
        {
          name,
          image: { type: 'oci', reference: image },
          resources: { vcpus: 1, memory_mib: 32 },
          runtime: { cmd: ['one', 'two $(words)'] },
          registry: registryFields,
          ...more,
        },
        { start: true },
      );
      expect(body.status, text).toBe('starting');
      return body.id as string;
    };
    const untilLogged = async (id: string, text: string) =>
      wholeLog(client, id, (events) => textOf(events).includes(text));

    test('comes before the command, from the version that the node pulls', async () => {
      const id = await create('older', { lifecycle: { ends_with_command: true } });
      await untilStatus(client, id, 'stopped');
      const [pod] = await namespace.podsOf(id);
      const { digest } = registry.image;
      expect(pod!.spec!.containers[0]).toMatchObject({
        image: `${registry.host}/team/app@${digest}`,
        imagePullPolicy: 'Always',
      });
      expect(containerStatus(pod!)!.imageID).toContain(digest);
      await untilLogged(id, 'older entry: one, two $(words)');
      expect((await client.get(`/v1/sandboxes/${id}`)).body.spec.image).toBe(image);
      registry.image = await imageWith('newer');
      const next = await create('newer', { lifecycle: { ends_with_command: true } });
      await untilStatus(client, next, 'stopped');
      await untilLogged(next, 'newer entry: one, two $(words)');
    });

    test('is read once for a run: a repeated start finds its Pod', async () => {
      const id = await create('repeated', { runtime: { cmd: ['wait'] } });
      await untilStatus(client, id, 'running');
      const [before] = await namespace.podsOf(id);
      registry.requests.length = 0;
      registry.image = await imageWith('later');
      const { rows } = await service.ctx.pool.query<{ run_id: string; run_spec: never }>(
        'select run_id, run_spec from sandboxes where id = $1',
        [id],
      );
      const [{ run_id: runId, run_spec: spec }] = rows as [(typeof rows)[number]];
      const run = {
        orgId: client.org.id,
        sandboxId: id,
        runId,
        name: 'again',
        spec,
        secrets: { registry: null, values: {} },
      };
      await service.runtime.start(run, new AbortController().signal);
      expect(registry.requests).toEqual([]);
      expect((await namespace.podsOf(id)).map(({ metadata }) => metadata!.uid)).toEqual([
        before!.metadata!.uid,
      ]);
    });

    test('is that of the next start after its tag moved, with an event, and with the credentials of the create', async () => {
      // Names of this registry alone: nodes keep the images of earlier ones, and name an image by any of its
      // repositories.
      const older = (registry.image = await imageWith(`before ${registry.port}`)).digest;
      const named = { runtime: { cmd: ['sleep', '600'], entrypoint: [] } };
      const byDigest = { runtime: { cmd: ['wait'] } };
      const ids = await Promise.all([create('by-tag', named), create('by-digest', byDigest)]);
      for (const id of ids)
        expect((await untilStatus(client, id, 'running')).body).toMatchObject({ image_digest: older });
      const newer = (registry.image = await imageWith(`after ${registry.port}`)).digest;
      for (const id of ids) await client.post(`/v1/sandboxes/${id}/stop`, {});
      const restarted = ids.map(async (id) => {
        await untilStatus(client, id, 'stopped');
        const body = await untilRunning(client, await client.post(`/v1/sandboxes/${id}/start`, {}));
        expect(body.image_digest, JSON.stringify(body)).toBe(newer);
        const query = { event_type: 'sandbox_image_moved', resource_id: id };
        expect((await client.get('/v1/events', query)).body.data).toMatchObject([
          { payload: { previous_digest: older, digest: newer, disk: 'replaced' } },
        ]);
        await client.delete(`/v1/sandboxes/${id}`);
      });
      await Promise.all(restarted);
    });

    test('has a working directory that commands need, and says so when the guest has removed it', async () => {
      registry.image = await imageWith('placed', { WorkingDir: '/placed' });
      const runtime = {
        cmd: ['sh', '-c', 'pwd; cd /; rmdir /placed; echo removed; sleep 600'],
        entrypoint: [],
      };
      const id = await create('placed', { runtime });
      await untilStatus(client, id, 'running');
      const log = await untilLogged(id, 'removed');
      expect(textOf(log)).toBe('/placed\nremoved\n');
      const { status, body } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'pwd' });
      expect([status, body.error.code, body.error.details]).toEqual([
        422,
        'command_not_started',
        { kind: 'bad_cwd' },
      ]);
      expect(body.error.message).toContain('the working directory of the image is gone');
      await client.delete(`/v1/sandboxes/${id}`);
    });

    test('fails a start that may not read it, and leaves no Pod and no Secret', async () => {
      const id = await create('denied', { registry: { ...registryFields, password: 'wrong' } });
      const { body } = await untilStatus(client, id, 'failed');
      expect(body.last_failure_message).toBe(
        `the entrypoint of the image ${image} cannot be read: the registry has no such repository, or requires credentials; give runtime.entrypoint, or [] for none`,
      );
      expect(await namespace.podsOf(id)).toEqual([]);
      const { core, namespace: name } = namespace;
      await until(
        () => core.listNamespacedSecret({ namespace: name, labelSelector: `sandkeep.dev/sandbox=${id}` }),
        ({ items }) => items.length === 0,
      );
    });
  },
);

/** The image of the nodes with an entrypoint. */
async function imageWith(name: string, more: Record<string, unknown> = {}): Promise<RemoteImage> {
  const { manifest, config, blobs } = await remoteImageOf(NODE_IMAGE);
  const { layers } = JSON.parse(manifest.toString()) as { layers: { digest: string }[] };
  const content = JSON.parse(blobs.get(config)!.toString()) as { config: Record<string, unknown> };
  const script = `echo "${name} entry: $1, $2"; if [ "$1" = wait ]; then sleep 1000; fi`;
  const Entrypoint = ['sh', '-c', script, 'entry'];
  return remoteImage(
    Buffer.from(JSON.stringify({ ...content, config: { ...content.config, Entrypoint, ...more } })),
    layers.map(({ digest }) => blobs.get(digest)!),
  );
}
