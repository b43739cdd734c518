import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeHelm, render } from '../support/helm.js';
import { describeKubernetes, openNamespace, type TestNamespace } from '../support/kubernetes.js';

describeHelm('the Helm chart', () => {
  describeKubernetes('on a cluster', () => {
    let namespace: TestNamespace;
    beforeAll(async () => {
      namespace = await openNamespace();
    });
    afterAll(() => namespace.remove());

    test.each(['external', 'embedded', 'everything'])(
      'renders objects that the cluster accepts, with the values %s',
      async (values) => {
        const { namespace: name, library, config } = namespace;
        const set = [`sandboxes.namespace=${name}`];
        // Helm reads which versions of the API this cluster has, and compares fields with its schema.
        const objects = render({ values, set, namespace: name, more: ['--validate'] });
        const api = library.KubernetesObjectApi.makeApiClient(config);
        for (const object of objects) {
          const answer = await api.create(object, undefined, 'All');
          expect([answer.kind, answer.metadata?.name]).toEqual([object.kind, object.metadata?.name]);
        }
      },
    );
  });
});
