import { SlotQueue } from '../../fairness/slot-queue.js';
import { PullError } from '../../registry/pull-error.js';

export interface HeldImage {
  id: string;
  bytes: number;
}

/**
 * Bounds the bytes of the pulled images that the sandboxes of an organization hold, the stopped ones too. Layers that
 * several images share count for each of them.
 */
export class HeldImages {
  /** All images that sandboxes of an organization may hold, and perhaps more. */
  private readonly known = new Map<string, Map<string, number>>();
  private readonly claiming = new SlotQueue({ total: Infinity, each: 1 });
  /** By run: the images of sandboxes that the engine does not have yet. */
  private readonly claims = new Map<string, HeldImage & { orgId: string }>();

  /** `list`: the pulled images that the sandboxes of an organization have now. */
  constructor(
    private readonly list: (orgId: string) => Promise<HeldImage[]>,
    private readonly maxBytes: () => number,
  ) {}

  /**
   * Throws PullError if the image is too much for the organization. It counts until `release`, and then for its
   * sandboxes.
   */
  async claim({ orgId, runId }: { orgId: string; runId: string }, image: HeldImage): Promise<void> {
    if (this.maxBytes() === Infinity) return;
    await this.claiming.run(orgId, async () => {
      if (this.known.get(orgId)?.has(image.id) !== true) {
        const held = (await this.read(orgId)).set(image.id, image.bytes);
        if (sum(held) > this.maxBytes())
          throw new PullError('too_many_images', `${sum(held)} bytes of images`);
        this.known.set(orgId, held);
      }
      this.claims.set(runId, { orgId, id: image.id, bytes: image.bytes });
    });
  }

  release(runId: string): void {
    this.claims.delete(runId);
  }

  /** In bytes. */
  async roomOf(orgId: string): Promise<number> {
    const most = this.maxBytes();
    return most === Infinity ? most : most - sum(await this.read(orgId));
  }

  private async read(orgId: string): Promise<Map<string, number>> {
    const claimedBefore = this.claimedBy(orgId);
    const held = (await this.list(orgId)).map(({ id, bytes }) => [id, bytes] as const);
    return new Map([...held, ...claimedBefore, ...this.claimedBy(orgId)]);
  }

  private claimedBy(orgId: string): [string, number][] {
    const own = [...this.claims.values()].filter((claim) => claim.orgId === orgId);
    return own.map(({ id, bytes }) => [id, bytes]);
  }
}

function sum(held: Map<string, number>): number {
  return [...held.values()].reduce((total, bytes) => total + bytes, 0);
}
