import type { V1Volume } from '@kubernetes/client-node';
import { posix } from 'node:path';
import { ExplainedError } from '../../lib/explained-error.js';
import { BUILDS, readPrograms, versionOf } from '../../guest/programs.js';
import type { Cluster } from './client.js';
import { CONFLICT, ignoreStatus } from './errors.js';
import { PROGRAMS_VOLUME } from './names.js';

/**
 * Process 1 and the agent, as a ConfigMap that every Pod mounts: the image of a tenant has neither, and no image of
 * ours is needed. It is immutable, and named by its content.
 */
export class PodPrograms {
  private readonly name: string;
  private readonly data: Record<string, string>;

  constructor(
    private readonly cluster: Cluster,
    readonly architecture: string,
  ) {
    const build = BUILDS[architecture];
    if (build === undefined) {
      const known = Object.keys(BUILDS).join(', ');
      throw new ExplainedError(
        `the nodes of the cluster are ${architecture}; sandboxes need one of ${known}`,
      );
    }
    const programs = readPrograms(build);
    this.name = `sandkeep-programs-${versionOf(programs)}`;
    this.data = Object.fromEntries(
      [...programs].map(([path, program]) => [posix.basename(path), program.toString('base64')]),
    );
  }

  async ensure(namespace: string): Promise<void> {
    await this.cluster.core
      .createNamespacedConfigMap({
        namespace,
        body: {
          metadata: { name: this.name, labels: { 'app.kubernetes.io/managed-by': 'sandkeep' } },
          binaryData: this.data,
          immutable: true,
        },
      })
      .catch(ignoreStatus(CONFLICT));
  }

  get volume(): V1Volume {
    return { name: PROGRAMS_VOLUME, configMap: { name: this.name, defaultMode: 0o555 } };
  }
}
