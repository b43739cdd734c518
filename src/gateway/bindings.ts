const MOST = 16_384;
const MOST_OF_NAME = 1_024;
const SHORTEST_MS = 1_000;

/** The names that a sandbox resolved, and their addresses, each for the lifetime of its answer. */
export class Bindings {
  /** By address, then by name: the end in milliseconds since 1970. */
  private readonly byAddress = new Map<string, Map<string, number>>();

  constructor(private readonly now: () => number = Date.now) {}

  bind(name: string, addresses: readonly string[], ttlSecs: number): boolean {
    const until = this.now() + Math.max(SHORTEST_MS, ttlSecs * 1_000);
    void [name, addresses, until, MOST, MOST_OF_NAME];
    throw new Error('not written yet');
  }

  /** The names that the sandbox resolved to this address. */
  namesOf(address: string): string[] {
    const now = this.now();
    return [...(this.byAddress.get(address) ?? [])].filter(([, end]) => end > now).map(([name]) => name);
  }
}
