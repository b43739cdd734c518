import { SlotQueue } from '../../fairness/slot-queue.js';

const VALID_MS = 10_000;
const VALID_PER_MEASURED = 20;
const MEASURE_TIMEOUT_MS = 10_000;
const MEASUREMENTS = { total: 4, each: 1 };

interface Use {
  measuredBytes: number;
  addedBytes: number;
  growingBytes: number;
  validUntil: number;
  measuring: Promise<void> | undefined;
}

export interface Account {
  take(bytes: number): boolean;
  close(outcome: { kept: boolean }): void;
}

/**
 * Counts the allocated bytes of volumes with a cap: the latest measurement, and the files that this process has added
 * since.
 */
export class CapLedger {
  private readonly uses = new Map<string, Use>();
  private readonly pieces = new SlotQueue(MEASUREMENTS);

  constructor(
    private readonly measure: (
      orgId: string,
      volumeId: string,
      signal: AbortSignal,
    ) => Promise<number | undefined>,
  ) {}

  /**
   * `lastKnownBytes`: the use if it cannot be measured now. `replacedBytes`: those of the file that the new one
   * replaces.
   */
  async open(
    { orgId, volumeId }: { orgId: string; volumeId: string },
    {
      capBytes,
      lastKnownBytes,
      replacedBytes,
    }: Record<'capBytes' | 'lastKnownBytes' | 'replacedBytes', number>,
  ): Promise<Account> {
    const key = `${orgId}/${volumeId}`;
    const use = this.uses.get(key) ?? {
      measuredBytes: lastKnownBytes,
      addedBytes: 0,
      growingBytes: 0,
      validUntil: 0,
      measuring: undefined,
    };
    this.uses.set(key, use);
    if (performance.now() > use.validUntil) {
      use.measuring ??= this.renew(use, orgId, volumeId).finally(() => (use.measuring = undefined));
      await use.measuring;
    }
    let taken = 0;
    return {
      take: (bytes) => {
        if (use.measuredBytes + use.addedBytes + use.growingBytes + bytes > capBytes + replacedBytes)
          return false;
        use.growingBytes += bytes;
        taken += bytes;
        return true;
      },
      close: ({ kept }) => {
        use.growingBytes -= taken;
        if (kept) use.addedBytes += taken - replacedBytes;
        if (use.growingBytes === 0 && this.uses.size > MAX_REMEMBERED) this.uses.delete(key);
      },
    };
  }

  private async renew(use: Use, orgId: string, volumeId: string): Promise<void> {
    await this.pieces.run(orgId, async () => {
      const begun = performance.now();
      const addedBefore = use.addedBytes;
      const kib = await this.measure(orgId, volumeId, AbortSignal.timeout(MEASURE_TIMEOUT_MS)).catch(
        () => undefined,
      );
      const tookMs = performance.now() - begun;
      use.validUntil = performance.now() + Math.max(VALID_MS, tookMs * VALID_PER_MEASURED);
      if (kib === undefined) return;
      use.measuredBytes = kib * 1024;
      // A file that was completed meanwhile may be in the measurement, and counts twice until the next one.
      use.addedBytes -= addedBefore;
    });
  }
}

const MAX_REMEMBERED = 10_000;
