import { Buffer } from 'node:buffer';
import { parseImageReference } from '../../sandboxes/spec/image-reference.js';
import type { Run } from '../runtime.js';
import type { Cluster } from './client.js';
import { CONFLICT, ignoreStatus, NOT_FOUND } from './errors.js';
import { INSTANCE_LABEL, podName, RUN_LABEL, SANDBOX_LABEL, selectorOf } from './names.js';

const PURPOSE_LABEL = 'sandkeep.dev/purpose';
const PULL = 'pull';
/** The key of the configuration of Docker for its hub. */
const HUB = 'https://index.docker.io/v1/';

/** Credentials of registries, as Secrets that exist from before the Pod until its image is there. */
export class PullSecrets {
  /** By name. A Pod with the same name uses it. */
  private held = new Set<string>();
  private readonly making = new Set<string>();

  constructor(
    private readonly cluster: Cluster,
    private readonly instanceId: string,
  ) {}

  /** Finds the Secrets that another process left. */
  async takeOver(): Promise<void> {
    const { core, namespace } = this.cluster;
    const labelSelector = `${selectorOf(this.instanceId)},${PURPOSE_LABEL}=${PULL}`;
    const { items } = await core.listNamespacedSecret({ namespace, labelSelector });
    this.held = new Set(items.flatMap(({ metadata }) => metadata?.name ?? []));
  }

  /** Keeps the Secret of a run during `createPod`, and then as long as the Pod needs it. Undefined: the run has no credentials. */
  async around<T>(run: Run, createPod: (secret: string | undefined) => Promise<T>): Promise<T> {
    const { sandboxId, runId, spec, secrets } = run;
    if (secrets.registry === null) return createPod(undefined);
    const name = podName(runId);
    this.making.add(name);
    try {
      const { core, namespace } = this.cluster;
      this.held.add(name);
      await core
        .createNamespacedSecret({
          namespace,
          body: {
            metadata: {
              name,
              labels: {
                'app.kubernetes.io/managed-by': 'sandkeep',
                [INSTANCE_LABEL]: this.instanceId,
                [SANDBOX_LABEL]: sandboxId,
                [RUN_LABEL]: runId,
                [PURPOSE_LABEL]: PULL,
              },
            },
            type: 'kubernetes.io/dockerconfigjson',
            data: { '.dockerconfigjson': dockerConfig(spec.image, secrets.registry) },
          },
        })
        .catch(ignoreStatus(CONFLICT));
      return await createPod(name);
    } finally {
      this.making.delete(name);
    }
  }

  /** Removes the Secrets whose Pods need them no longer. `needs`: the Pod may still pull its image. */
  async sweep(needs: (pod: string) => boolean): Promise<void> {
    const { core, namespace } = this.cluster;
    for (const name of this.held) {
      if (this.making.has(name) || needs(name)) continue;
      await core.deleteNamespacedSecret({ namespace, name }).catch(ignoreStatus(NOT_FOUND));
      this.held.delete(name);
    }
  }
}

function dockerConfig(image: string, { username, password }: { username: string; password: string }): string {
  const registry = parseImageReference(image)?.registry ?? '';
  const server = registry === 'docker.io' ? HUB : registry;
  const auth = Buffer.from(`${username}:${password}`).toString('base64');
  return Buffer.from(JSON.stringify({ auths: { [server]: { username, password, auth } } })).toString(
    'base64',
  );
}
