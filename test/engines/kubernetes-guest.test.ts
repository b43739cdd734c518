import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll } from 'vitest';
import { NAMESPACE_CHOICES } from '../../src/engines/kubernetes/namespace-choices.js';
import type { KubernetesRuntime } from '../../src/engines/kubernetes/runtime.js';
import type { Run } from '../../src/engine/runtime.js';
import { censusOf } from '../support/docker-guest.js';
import { sh } from '../support/guest.js';
import { describeKubernetes, NODE_IMAGE, openNamespace, type TestNamespace } from '../support/kubernetes.js';
import { until } from '../support/polling.js';
import { runSpecOf } from '../support/run-spec.js';
import { guestConformance } from './guest-conformance.js';
import type { GuestTarget } from './guest/target.js';

for (const choice of NAMESPACE_CHOICES)
  describeKubernetes(`a guest on Kubernetes, namespaces: ${choice}`, () => {
    let namespace: TestNamespace;
    let runtime: KubernetesRuntime;
    beforeAll(async () => {
      namespace = await openNamespace(choice);
      runtime = await namespace.connect(randomUUID());
    });
    afterAll(async () => {
      await runtime.close();
      await namespace.remove();
    });

    guestConformance(async (): Promise<GuestTarget> => {
      const run = runOf({ env: [{ key: 'COLOUR', value: 'blue' }] });
      await runtime.start(run, new AbortController().signal);
      await until(
        () => runtime.list(),
        (held) => held.some(({ sandboxId, state }) => sandboxId === run.sandboxId && state === 'running'),
      );
      const { guest, release } = await runtime.openGuest(run.sandboxId);
      await sh(guest, '/bin/busybox --install -s /bin && chmod 1777 /tmp');
      return {
        guest,
        directory: await sh(guest, 'mktemp -d /tmp/XXXXXX'),
        census: () => censusOf(guest),
        close: async () => {
          release();
          await runtime.destroy(run.sandboxId);
        },
      };
    });
  });

const ORG = randomUUID();

function runOf(spec: Partial<Run['spec']>): Run {
  return {
    orgId: ORG,
    sandboxId: randomUUID(),
    runId: randomUUID(),
    name: 'guest',
    secrets: { registry: null, values: {} },
    spec: runSpecOf(NODE_IMAGE, { memoryMib: 256, ...spec }),
  };
}
