/** Pauses after a pass for so many times as long as it took: other programs may change addresses all the time. */
const PAUSE_SHARE = 4;
const AT_ONCE = 2;

/**
 * Closes addresses to sandboxes that loaded their rules before the machine had them. A new bridge brings one, and other
 * programs may add more.
 */
export class AddressUpdates {
  /** By running sandbox: the addresses in its rules. */
  private readonly loaded = new Map<string, string>();
  private gatewayHas: string | undefined;
  private current: Promise<void> | undefined;
  private isUrgent = false;
  private notBefore = 0;
  private isClosed = false;

  /** `update`: writes the addresses of now. `inGateway`: for the rules that are not of one sandbox. */
  constructor(
    private readonly options: {
      update: (sandboxId: string) => Promise<void>;
      inGateway: () => Promise<void>;
      isClaimed: (sandboxId: string) => boolean;
    },
  ) {}

  /** A start loads rules with these. */
  started(sandboxId: string, addresses: string): void {
    this.loaded.set(sandboxId, addresses);
  }

  /** `running`: the sandboxes whose network runs. `isUrgent`: addresses that the service itself added. */
  note(running: readonly string[], addresses: string, isUrgent = false): void {
    const known = new Set(running);
    for (const id of this.loaded.keys())
      if (!known.has(id) && !this.options.isClaimed(id)) this.loaded.delete(id);
    this.isUrgent ||= isUrgent;
    if (this.current !== undefined || this.isClosed) return;
    if (!this.isUrgent && performance.now() < this.notBefore) return;
    this.isUrgent = false;
    const old = running.filter((id) => this.loaded.get(id) !== addresses);
    if (old.length === 0 && this.gatewayHas === addresses) return;
    const begun = performance.now();
    this.current = this.updateAll(old, addresses).finally(() => {
      this.current = undefined;
      this.notBefore = performance.now() + PAUSE_SHARE * (performance.now() - begun);
    });
  }

  async close(): Promise<void> {
    this.isClosed = true;
    await this.current;
  }

  private async updateAll(ids: readonly string[], addresses: string): Promise<void> {
    if (this.gatewayHas !== addresses) {
      await this.options.inGateway().then(
        () => (this.gatewayHas = addresses),
        () => undefined,
      );
    }
    const left = [...ids];
    const workers = Array.from({ length: AT_ONCE }, async () => {
      for (let id = left.pop(); id !== undefined && !this.isClosed; id = left.pop()) {
        // Its start loads rules, which have newer addresses.
        if (this.options.isClaimed(id)) continue;
        const had = this.loaded.get(id);
        try {
          await this.options.update(id);
          // It may have started meanwhile.
          if (this.loaded.get(id) === had) this.loaded.set(id, addresses);
        } catch {
          // It has ended, or the next pass tries again.
        }
      }
    });
    await Promise.all(workers);
  }
}
