import type { SandboxSettings } from '../../gateway/protocol.js';
import type { Surroundings } from '../../network-policy/evaluate.js';
import { PUBLIC_PROFILE } from '../../network-policy/public-profile.js';
import type { GatedNetwork, RunSecrets, RunSpec } from '../../spec/run-spec.js';
import type { LinkedNamespace } from '../namespace.js';
import { applyRules } from '../nftables.js';
import { KernelSets } from './kernel-sets.js';
import { makeLink } from './links.js';

/** A run whose connections need the gateway. */
export interface GatedRun {
  orgId: string;
  sandboxId: string;
  spec: RunSpec & { gated: GatedNetwork };
}

export function isGated<R extends { spec: RunSpec }>(
  run: R,
): run is R & { spec: RunSpec & { gated: GatedNetwork } } {
  return run.spec.gated != null && run.spec.networkEnabled;
}

/** A running sandbox of the gateway, in the kernel. It keeps no values of secrets. */
export class GatedSandbox {
  readonly sets: KernelSets;
  /** The latest list of the engine had no running container of it. */
  isMissing = false;
  /** The namespace of the gateway in which its link ends. */
  linkedTo: string | undefined;

  constructor(
    /** Its secrets can change while it runs. */
    public run: GatedRun,
    readonly network: LinkedNamespace,
    /** The addresses of the machine can change while it runs. */
    public surroundings: Surroundings,
    /** Bounds the programs that run at once. */
    private readonly inTurn: (orgId: string, act: () => Promise<void>) => Promise<void>,
  ) {
    this.sets = new KernelSets(this.policy, async (script) =>
      this.inTurn(run.orgId, async () => network.enter(async (namespace) => applyRules(namespace, script))),
    );
  }

  get address(): string {
    return this.network.links[0]!.split('/')[0]!;
  }

  private get policy() {
    return this.run.spec.networkPolicy ?? PUBLIC_PROFILE;
  }

  /** `gateway`: an open descriptor of its namespace, and the name of that namespace. */
  async link(gateway: { descriptor: number; key: string }): Promise<void> {
    const { sandboxId, spec } = this.run;
    const mtu = spec.networkInterface?.mtu ?? undefined;
    await this.network.enter(async (namespace) =>
      makeLink(namespace, gateway.descriptor, {
        sandboxId,
        address: this.address,
        mtu,
        forwards: this.network.forwards ?? false,
      }),
    );
    this.linkedTo = gateway.key;
  }

  settings(secrets: RunSecrets): SandboxSettings {
    const { orgId, sandboxId, spec } = this.run;
    const { strict, dns, tls } = spec.gated;
    return {
      id: sandboxId,
      orgId,
      address: this.address,
      policy: this.policy,
      surroundings: this.surroundings,
      strict,
      dns,
      tls,
      // A secret without its value stays a placeholder.
      secrets: spec.gated.secrets.flatMap((secret) => {
        const value = secrets.values[secret.name];
        return value ? [{ ...secret, value }] : [];
      }),
    };
  }
}
