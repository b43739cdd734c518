import { randomUUID } from 'node:crypto';
import type { GatewayServices } from '../../../engine/definition.js';
import { MachineNames } from '../../../gateway/machine-names.js';
import { isGated, type GatedRun } from '../../../machine-network/gateway/gated-sandbox.js';
import { GatewaySupervisor } from '../../../machine-network/gateway/supervisor.js';
import type { MachineSurroundings } from '../../../machine-network/machine-surroundings.js';
import type { GatewayNamespace, LinkedNamespace } from '../../../machine-network/namespace.js';
import type { GuardedGroup } from '../../../network-policy/guarded-groups.js';
import type { HeldNamespace } from './held-namespace.js';
import type { LinkPlacement } from './link-placement.js';
import { makeGatewayNamespace } from './sandbox-namespace.js';

const MTU = 1_500;

interface VmGatewayOptions {
  instanceId: string;
  services: GatewayServices;
  resolvers: readonly string[] | undefined;
  openableGroups: readonly GuardedGroup[];
  surroundings: MachineSurroundings;
  placement: LinkPlacement;
  /** The sandboxes that run, when those of an earlier process are known. */
  held: () => Promise<readonly { orgId: string; sandboxId: string; namespace: HeldNamespace }[]>;
}

/**
 * The gateway of the virtual machines. Its namespace ends with the process of the service, as the program in it does.
 * The next process makes another one, and links the running sandboxes to it.
 */
export class VmGateway {
  readonly supervisor: GatewaySupervisor;
  private held: HeldNamespace | undefined;

  constructor(private readonly options: VmGatewayOptions) {
    const { instanceId, services, openableGroups, surroundings, resolvers } = options;
    const names = new MachineNames(resolvers ? { servers: resolvers } : {});
    this.supervisor = new GatewaySupervisor({
      instanceId,
      services,
      openableGroups,
      addresses: () => surroundings.addresses(),
      surroundingsOf: (network) => surroundings.of(network),
      resolvers: () => surroundings.resolvers(),
      holder: async () => this.makeNamespace(),
      ask: async (query, timeoutMs) => names.ask(query, timeoutMs),
      running: async () => this.running(),
    });
  }

  async close(): Promise<void> {
    await this.supervisor.close();
    this.held?.close();
  }

  private async makeNamespace(): Promise<GatewayNamespace> {
    this.held?.close();
    const held = await this.options.placement.place(makeGatewayNamespace, { mtu: MTU });
    this.held = held;
    const { gateways, links, enter, isAlive } = held;
    return { key: randomUUID(), gateways, links, enter, isAlive };
  }

  private async running(): Promise<{ run: GatedRun; network: LinkedNamespace }[]> {
    const { held, services } = this.options;
    const found: { run: GatedRun; network: LinkedNamespace }[] = [];
    for (const { orgId, sandboxId, namespace } of await held()) {
      const spec = await services.specOf(orgId, sandboxId);
      const run = spec && { orgId, sandboxId, spec };
      if (run && isGated(run)) found.push({ run, network: namespace });
    }
    return found;
  }
}
