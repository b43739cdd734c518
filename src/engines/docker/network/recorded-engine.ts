import type Docker from 'dockerode';
import type { RecordedEngine } from '../../../machine-network/record/recorder.js';
import { INSTANCE_LABEL } from '../container.js';
import { inspectPauseContainer, ownerOf, parsePauseContainer, PAUSE_LABEL } from './pause-container.js';

/** The namespaces with counters are those of pause containers. */
export function recordedEngine(docker: Docker, instanceId: string): RecordedEngine {
  return {
    list: async () => {
      const label = [`${INSTANCE_LABEL}=${instanceId}`, PAUSE_LABEL];
      const running = await docker.listContainers({ filters: { label } });
      return running.flatMap((container) => ownerOf(container) ?? []);
    },
    find: async (sandboxId) => {
      const found = await inspectPauseContainer(docker, sandboxId);
      return found && parsePauseContainer(found);
    },
  };
}
