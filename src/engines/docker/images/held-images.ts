import type Docker from 'dockerode';
import { SlotQueue } from '../../../fairness/slot-queue.js';
import { ORG_LABEL } from '../container.js';
import { listPulled } from './engine-image.js';
import { PullError } from '../../../registry/pull-error.js';

export interface HeldImage {
  id: string;
  bytes: number;
}

/**
 * Bounds the bytes of the pulled images that the containers of an organization hold, those of stopped sandboxes too.
 * Layers that several images share count for each of them.
 */
export class HeldImages {
  /** All images that containers of an organization may hold, and perhaps more. */
  private readonly known = new Map<string, Map<string, number>>();
  private readonly claiming = new SlotQueue({ total: Infinity, each: 1 });
  /** By run: the images of containers that do not exist yet. */
  private readonly claims = new Map<string, HeldImage & { orgId: string }>();

  constructor(
    private readonly docker: Docker,
    private readonly maxBytes: () => number,
  ) {}

  /**
   * Throws PullError if the image is too much for the organization. It counts until `release`, and then for its
   * containers.
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
    const containers = await this.docker.listContainers({
      all: true,
      filters: { label: [`${ORG_LABEL}=${orgId}`] },
    });
    const images = await listPulled(this.docker);
    const ids = new Set(containers.map(({ ImageID }) => ImageID));
    const held = images.filter(({ id }) => ids.has(id)).map(({ id, bytes }) => [id, bytes] as const);
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
