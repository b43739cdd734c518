import { Evaluator } from '../network-policy/evaluate.js';
import { Bindings } from './bindings.js';
import type { SandboxSettings } from './protocol.js';

/** A sandbox as the gateway knows it. The names it resolved stay when its settings change. */
export class GatedSandbox {
  readonly evaluator: Evaluator;

  constructor(
    readonly settings: SandboxSettings,
    readonly bindings = new Bindings(),
  ) {
    this.evaluator = new Evaluator(settings.policy, settings.surroundings);
  }
}

/** The sandboxes by the address from which their packets come, which the kernel has checked. */
export class SandboxTable {
  private readonly byId = new Map<string, GatedSandbox>();
  private readonly byAddress = new Map<string, GatedSandbox>();

  set(settings: SandboxSettings): GatedSandbox {
    const previous = this.byId.get(settings.id);
    this.forget(settings.id);
    // The service gives an address to one sandbox at a time, so another one that had it has ended.
    const ended = this.byAddress.get(settings.address);
    if (ended) this.forget(ended.settings.id);
    const sandbox = new GatedSandbox(settings, previous?.bindings);
    this.byId.set(settings.id, sandbox);
    this.byAddress.set(settings.address, sandbox);
    return sandbox;
  }

  forget(id: string): void {
    const sandbox = this.byId.get(id);
    if (!sandbox) return;
    this.byId.delete(id);
    // Another sandbox may have its address by now.
    const { address } = sandbox.settings;
    if (this.byAddress.get(address) === sandbox) this.byAddress.delete(address);
  }

  at(address: string): GatedSandbox | undefined {
    return this.byAddress.get(address);
  }

  byIdOf(id: string): GatedSandbox | undefined {
    return this.byId.get(id);
  }
}
