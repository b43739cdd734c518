import type { V1ConfigMap } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { WatchCache } from '../../src/engines/kubernetes/watch-cache.js';
import { describeKubernetes, openNamespace, type TestNamespace } from '../support/kubernetes.js';

const PATIENCE_MS = 120_000;

describeKubernetes('the copy of the objects of a cluster', () => {
  let namespace: TestNamespace;
  let copy: WatchCache<V1ConfigMap>;
  beforeAll(async () => {
    namespace = await openNamespace();
  });
  afterEach(() => copy.close());
  afterAll(() => namespace.remove());

  const open = async (): Promise<WatchCache<V1ConfigMap>> => {
    const { core, namespace: name } = namespace;
    copy = new WatchCache<V1ConfigMap>(namespace, {
      path: `/api/v1/namespaces/${name}/configmaps`,
      labelSelector: 'kind=test',
      groupOf: ({ metadata }) => metadata!.labels!['group']!,
      list: (page) => core.listNamespacedConfigMap({ namespace: name, ...page, limit: 1 }),
    });
    await copy.relist();
    return copy;
  };
  const create = (name: string, group: string) =>
    namespace.core.createNamespacedConfigMap({
      namespace: namespace.namespace,
      body: { metadata: { name, labels: { kind: 'test', group } } },
    });
  const remove = (name: string) =>
    namespace.core.deleteNamespacedConfigMap({ namespace: namespace.namespace, name });
  const namesOf = (group: string) => copy.of(group).map(({ metadata }) => metadata!.name);

  test('has every page of the list, and follows changes', async () => {
    await create('one', 'a');
    await create('two', 'a');
    await open();
    expect(namesOf('a')).toEqual(['one', 'two']);
    await create('three', 'b');
    expect(await copy.until('three', (object) => object !== undefined, PATIENCE_MS)).toBe(true);
    await remove('one');
    expect(await copy.until('one', (object) => object === undefined, PATIENCE_MS)).toBe(true);
    expect([namesOf('a'), namesOf('b')]).toEqual([['two'], ['three']]);
  });

  test('lists again when the server has forgotten its version, and loses no removal', async () => {
    await create('kept', 'c');
    await create('lost', 'c');
    await open();
    const inner = copy as unknown as { version: string; watching: AbortController };
    // The watch breaks, and one object goes meanwhile.
    inner.version = '1';
    inner.watching.abort();
    await remove('lost');
    expect(await copy.until('lost', (object) => object === undefined, PATIENCE_MS)).toBe(true);
    expect(namesOf('c')).toEqual(['kept']);
    expect(Number(inner.version)).toBeGreaterThan(1);
  });
});
