import type { V1Namespace } from '@kubernetes/client-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { placeOf } from '../../src/engines/kubernetes/names.js';
import { makeClient, type Client } from '../support/client.js';
import { describeKubernetes, NODE_IMAGE, openNamespace, type TestNamespace } from '../support/kubernetes.js';
import { until, untilStatus } from '../support/polling.js';
import { cleanUp, kill, launch, makeFolder, ready, stop, type Served } from '../support/processes.js';

describeKubernetes(
  'after kill -9 of the service between a namespace of an organization and its first Pod',
  () => {
    let namespace: TestNamespace;
    let folder: string;
    let service: Served;
    beforeAll(async () => {
      namespace = await openNamespace('each-organization');
      folder = makeFolder();
      service = await serve();
    });
    afterAll(async () => {
      await cleanUp(folder);
      await namespace.remove();
    });

    function serve(): Promise<Served> {
      const cluster = ['--runtime', 'kubernetes', '--kubeconfig', process.env['KUBECONFIG']!];
      const places = [
        '--kubernetes-namespace',
        namespace.namespace,
        '--kubernetes-namespaces',
        'each-organization',
      ];
      const more = ['--kubernetes-network', 'trusted', '--kubernetes-node-images', NODE_IMAGE];
      const args = ['serve', '--json', '--port', '0', '--data-dir', folder, '--log-level', 'warn'];
      return ready(launch([...args, ...cluster, ...places, ...more]), folder);
    }

    function clientOf(key: string): Client {
      return makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
    }

    test(
      'the next process completes the namespace, and starts the sandbox once',
      { timeout: 900_000 },
      async () => {
        const key = service.firstKey!;
        let id = await killedIn(key, 'first');
        // The kill can come too late, and does so often on a busy machine.
        for (let more = 9; more > 0 && (await namespace.podsOf(id)).length > 0; more -= 1) {
          service = await serve();
          await clientOf(key).delete(`/v1/sandboxes/${id}`);
          await until(
            () => namespace.podsOf(id),
            (pods) => pods.length === 0,
          );
          for (const name of await namespace.organizations()) await namespace.core.deleteNamespace({ name });
          await until(
            () => namespace.organizations(),
            (names) => names.length === 0,
          );
          id = await killedIn(key, `again-${more}`);
        }
        expect(await namespace.podsOf(id)).toEqual([]);
        service = await serve();
        const client = clientOf(key);
        await untilStatus(client, id, 'running');
        const [home] = await namespace.organizations();
        expect((await namespace.podsOf(id)).map((pod) => placeOf(pod).namespace)).toEqual([home]);
        await client.delete(`/v1/sandboxes/${id}`);
        await until(
          () => namespace.podsOf(id),
          (pods) => pods.length === 0,
        );
        expect(await stop(service)).toBe(0);
      },
    );

    /** Kills the service as soon as there is a namespace for a new sandbox. Returns the id of the sandbox. */
    async function killedIn(key: string, name: string): Promise<string> {
      const { library, config } = namespace;
      const { metadata } = await namespace.core.listNamespace();
      const created = new Promise<void>((resolve, reject) => {
        const onEvent = (type: string, { metadata: seen }: V1Namespace) => {
          if (type !== 'ADDED' || !seen!.name!.startsWith(`${namespace.namespace}-`)) return;
          kill('SIGKILL', service.pid);
          resolve();
        };
        new library.Watch(config)
          .watch(
            '/api/v1/namespaces',
            { resourceVersion: metadata!.resourceVersion },
            onEvent,
            () => undefined,
          )
          .then((request) => created.finally(() => request.abort()), reject);
      });
      const client = clientOf(key);
      const { body } = await client.post('/v1/sandboxes', {
        name,
        image: { type: 'oci', reference: NODE_IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 64 },
      });
      await client.post(`/v1/sandboxes/${body.id}/start`, {}).catch(() => undefined);
      await created;
      await service.exited;
      return body.id as string;
    }
  },
);
