import type Docker from 'dockerode';
import { engineMessage, ignoreStatus, NOT_FOUND, statusOf } from '../errors.js';
import type { Bridges } from './bridges.js';
import {
  createPauseContainer,
  inspectPauseContainer,
  networkNames,
  parsePauseContainer,
  pauseContainerName,
  startPauseContainer,
  type PauseContainer,
  type PauseContainerOptions,
} from './pause-container.js';

/** The bridge of the kernel has no port left, or its subnet no address. */
const BRIDGE_FULL = /\bexchange full$|\bno available (?:IPv4 )?addresses\b/i;

/** Creates and starts pause containers on the network that the operator named, or on bridges of the installation. */
export class PausePlacement {
  /** `network`: the name of a network, or the bridges to choose from. */
  constructor(
    private readonly docker: Docker,
    private readonly network: string | Bridges,
  ) {}

  async create(options: Omit<PauseContainerOptions, 'network'>): Promise<void> {
    const { network } = this;
    const { sandboxId } = options;
    if (typeof network === 'string') return createPauseContainer({ ...options, network });
    await createPauseContainer({ ...options, network: await network.place(sandboxId) }).catch(
      async (error: unknown) => {
        // Engines from version 25 on look for the network here.
        if (statusOf(error) !== NOT_FOUND) throw error;
        await createPauseContainer({ ...options, network: await network.restore(sandboxId) });
      },
    );
  }

  /** `found`: it runs already. */
  adopt(sandboxId: string, found: Docker.ContainerInspectInfo): PauseContainer {
    if (typeof this.network !== 'string') this.network.keep(sandboxId, networkNames(found)[0]);
    return parsePauseContainer(found);
  }

  /** `found`: it exists, as the engine described it. */
  async start(
    { sandboxId, mac }: Pick<PauseContainerOptions, 'sandboxId' | 'mac'>,
    found: Docker.ContainerInspectInfo | undefined,
  ): Promise<PauseContainer> {
    const { docker, network } = this;
    if (typeof network === 'string') return startPauseContainer(docker, sandboxId);
    if (found) {
      await network.known();
      const [name] = networkNames(found);
      // A crash came between the two steps of a move. The engine would start it without a network.
      if (name === undefined) await this.connect(sandboxId, await network.place(sandboxId));
      else network.keep(sandboxId, name);
    }
    try {
      return await startPauseContainer(docker, sandboxId);
    } catch (error) {
      if (statusOf(error) === NOT_FOUND) {
        await this.move(sandboxId, await network.restore(sandboxId));
        // Engines before version 25 keep a MAC address on the first network of a container alone.
      } else if (mac === undefined && BRIDGE_FULL.test(engineMessage(error))) {
        await this.move(sandboxId, await network.placeElsewhere(sandboxId));
      } else throw error;
      return startPauseContainer(docker, sandboxId);
    }
  }

  private async move(sandboxId: string, target: string): Promise<void> {
    const Container = pauseContainerName(sandboxId);
    const found = await inspectPauseContainer(this.docker, sandboxId);
    for (const name of found ? networkNames(found) : []) {
      const left = this.docker.getNetwork(name);
      await left.disconnect({ Container, Force: true }).catch(ignoreStatus(NOT_FOUND));
    }
    await this.connect(sandboxId, target);
  }

  private async connect(sandboxId: string, target: string): Promise<void> {
    await this.docker.getNetwork(target).connect({ Container: pauseContainerName(sandboxId) });
  }
}
