import { ApiError } from '../../http/errors.js';
import { AgentPool } from '../../guest/agent-pool.js';
import { GuestAgent } from '../../guest/agent.js';
import { AGENT_PROGRAM, DEFAULT_PATH } from '../../guest/programs.js';
import type { Cluster } from './client.js';
import { execStream } from './exec-stream.js';
import type { Place } from './names.js';

interface GuestPlace {
  place: Place;
  addedPath?: string | undefined;
  /** Undefined: that of the image. */
  workdir?: string | undefined;
}

/** The agents in the Pods of a cluster. Each is started by an exec of the cluster, as the user of the sandbox. */
export class PodGuests extends AgentPool {
  /** `findPod`: throws for one that is gone. `addedPath`: the directory at the end of PATH, if any. */
  constructor(cluster: Cluster, findPod: (name: string) => GuestPlace) {
    super(async (name) => startAgent(cluster, findPod(name)));
  }
}

/** The cluster shows neither the environment nor the working directory of an image: the agent knows its own. */
async function startAgent(
  cluster: Cluster,
  { place, addedPath, workdir = '' }: GuestPlace,
): Promise<GuestAgent> {
  // Without a directory the agent takes its own, which is that of the image.
  const defaults = { env: [] as readonly string[], cwd: workdir };
  const { stream, opening } = await execStream(cluster, place, [AGENT_PROGRAM]);
  const agent = new GuestAgent(stream, defaults);
  await agent.opened().catch((cause: unknown) => {
    throw explained(opening(), cause);
  });
  const env = agent.environment;
  defaults.env = addedPath === undefined ? env : withPath(env, addedPath);
  return agent;
}

/**
 * An exec of the cluster begins in the working directory of the container and has no field for another. A directory of
 * the sandbox is entered by the agent instead, but that of an image is known to its node only.
 */
function explained(opening: string, cause: unknown): unknown {
  if (!/\bchdir to cwd\b/.test(opening)) return cause;
  const message =
    'the working directory of the image is gone, and the cluster starts no command without it: start the sandbox again, which brings it back; give runtime.workdir to be able to remove it';
  return new ApiError('command_not_started', message, { kind: 'bad_cwd' }, { cause });
}

function withPath(env: readonly string[], directory: string): string[] {
  const path = env.findLast((entry) => entry.startsWith('PATH=')) ?? `PATH=${DEFAULT_PATH}`;
  return [...env.filter((entry) => !entry.startsWith('PATH=')), `${path}:${directory}`];
}
