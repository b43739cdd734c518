import { Buffer } from 'node:buffer';
import { parseImageReference } from '../../sandboxes/spec/image-reference.js';
import type { Run } from '../runtime.js';
import type { Cluster } from './client.js';
import { INSTANCE_LABEL, podName, RUN_LABEL, SANDBOX_LABEL, selectorOf, type Place } from './names.js';
import type { Namespaces } from './namespaces.js';
import { RunObjects } from './run-objects.js';

const PURPOSE_LABEL = 'sandkeep.dev/purpose';
const PULL = 'pull';
/** The key of the configuration of Docker for its hub. */
const HUB = 'https://index.docker.io/v1/';

/** Credentials of registries, as Secrets that exist from before the Pod until its image is there. */
export class PullSecrets {
  private readonly objects: RunObjects;

  constructor(
    private readonly cluster: Cluster,
    private readonly instanceId: string,
    namespaces: Namespaces,
  ) {
    const { core } = cluster;
    const labelSelector = `${selectorOf(instanceId)},${PURPOSE_LABEL}=${PULL}`;
    this.objects = new RunObjects(namespaces, {
      list: async (namespace) => core.listNamespacedSecret({ namespace, labelSelector }),
      remove: async (place) => core.deleteNamespacedSecret(place),
    });
  }

  async takeOver(): Promise<void> {
    await this.objects.takeOver();
  }

  /** Keeps the Secret of a run during `createPod`, and then as long as the Pod needs it. Undefined: the run has no credentials. */
  async around<T>(run: Run, createPod: (secret: string | undefined) => Promise<T>): Promise<T> {
    const { registry } = run.secrets;
    if (registry === null) return createPod(undefined);
    const config = dockerConfig(run.spec.image, registry);
    return this.objects.around(
      run,
      async (place) => this.create(run, config, place),
      async () => createPod(podName(run.runId)),
    );
  }

  /** `isNeeded`: the Pod may still pull its image. */
  async sweep(isNeeded: (pod: string) => boolean): Promise<void> {
    await this.objects.sweep(isNeeded);
  }

  private async create({ sandboxId, runId }: Run, config: string, { name, namespace }: Place): Promise<void> {
    await this.cluster.core.createNamespacedSecret({
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
        data: { '.dockerconfigjson': config },
      },
    });
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
