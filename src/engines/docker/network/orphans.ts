/** Another process may be starting the sandbox of a pause container that has none yet. */
const ORPHAN_MS = 30_000;

/** Pause containers without a sandbox, and how long they have been seen so. */
export class Orphans {
  private since = new Map<string, number>();

  /** `ids`: all of a list of the engine. */
  note(ids: readonly string[]): void {
    const now = performance.now();
    this.since = new Map(ids.map((id) => [id, this.since.get(id) ?? now]));
  }

  isOld(id: string): boolean {
    return performance.now() - (this.since.get(id) ?? performance.now()) > ORPHAN_MS;
  }
}
