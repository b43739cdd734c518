import { Buffer } from 'node:buffer';
import { parseImageReference } from '../../spec/image-reference.js';
import { environmentOf } from '../../engine/environment.js';
import type { Run } from '../../engine/runtime.js';
import type { RunSpec } from '../../spec/run-spec.js';
import type { Cluster } from './client.js';
import { INSTANCE_LABEL, podName, RUN_LABEL, SANDBOX_LABEL, selectorOf, type Place } from './names.js';
import type { Namespaces } from './namespaces.js';
import { RunObjects } from './run-objects.js';

const PURPOSE_LABEL = 'sandkeep.dev/purpose';
const START = 'start';
const PULL_CONFIG = '.dockerconfigjson';
/** The key of the configuration of Docker for its hub. */
const HUB = 'https://index.docker.io/v1/';

/** The names of the Secret in a Pod, for each use that the Pod makes of it. */
export interface SecretNames {
  pull?: string;
  variables?: string;
}

/**
 * Credentials of registries and secret variables of runs, as one Secret a run. It exists from before the Pod until the
 * container has started. The node reads it to pull the image and to create the container, and a container of a Pod is
 * created once.
 */
export class StartSecrets {
  private readonly objects: RunObjects;

  constructor(
    private readonly cluster: Cluster,
    private readonly instanceId: string,
    namespaces: Namespaces,
  ) {
    const { core } = cluster;
    // Any purpose: earlier releases had another word for it.
    const labelSelector = `${selectorOf(instanceId)},${PURPOSE_LABEL}`;
    this.objects = new RunObjects(namespaces, {
      list: async (namespace) => core.listNamespacedSecret({ namespace, labelSelector }),
      remove: async (place) => core.deleteNamespacedSecret(place),
    });
  }

  async takeOver(): Promise<void> {
    await this.objects.takeOver();
  }

  /**
   * Keeps the Secret of a run during `createPod`, and then as long as the Pod needs it. Throws StartRefusedError when
   * the value of a variable is lost.
   */
  async around<T>(run: Run, createPod: (names: SecretNames) => Promise<T>): Promise<T> {
    const { registry } = run.secrets;
    const variables = variablesOf(run);
    if (registry === null && variables.length === 0) return createPod({});
    const name = podName(run.runId);
    const names = {
      ...(registry === null ? {} : { pull: name }),
      ...(variables.length === 0 ? {} : { variables: name }),
    };
    const data = Object.fromEntries([
      ...(registry === null ? [] : [[PULL_CONFIG, base64(dockerConfig(run.spec.image, registry))] as const]),
      ...variables,
    ]);
    return this.objects.around(
      run,
      async (place) => this.create(run, data, place),
      async () => createPod(names),
    );
  }

  /** `isNeeded`: the container of the Pod may still have to be created. */
  async sweep(isNeeded: (pod: string) => boolean): Promise<void> {
    await this.objects.sweep(isNeeded);
  }

  private async create(
    { sandboxId, runId }: Run,
    data: Record<string, string>,
    { name, namespace }: Place,
  ): Promise<void> {
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
            [PURPOSE_LABEL]: START,
          },
        },
        // No node watches it, and nobody who may only update Secrets can change it.
        immutable: true,
        type: PULL_CONFIG in data ? 'kubernetes.io/dockerconfigjson' : 'Opaque',
        data,
      },
    });
  }
}

/** The key of a variable in the Secret. Names of variables can be longer than keys. */
export function variableKey(spec: RunSpec, name: string): string {
  return `variable-${spec.env.findLastIndex(({ key }) => key === name)}`;
}

function variablesOf(run: Run): [key: string, value: string][] {
  const { spec } = run;
  return environmentOf(run).flatMap(({ key, value }, index): [string, string][] =>
    spec.env[index]!.secret === true ? [[variableKey(spec, key), base64(value)]] : [],
  );
}

function dockerConfig(image: string, { username, password }: { username: string; password: string }): string {
  const registry = parseImageReference(image)?.registry ?? '';
  const server = registry === 'docker.io' ? HUB : registry;
  const auth = base64(`${username}:${password}`);
  return JSON.stringify({ auths: { [server]: { username, password, auth } } });
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}
