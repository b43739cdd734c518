import { descriptorLimit } from '../../lib/descriptor-limit.js';
import { Slots, type Release } from '../../fairness/slots.js';
import type { SandboxSettings } from '../protocol.js';

/** Listeners, standard streams, name servers. */
const OTHER_DESCRIPTORS = 1_024;
const MIB = 1024 * 1024;

/**
 * The connections of all, of one organization and of one sandbox. An organization that holds few may open more also
 * when others hold all. A connection has two descriptors.
 */
export class ConnectionLimits {
  private readonly open: Slots;
  private readonly openOfSandbox: Slots;
  /** Those whose first bytes are awaited: they cost nothing to open. */
  private readonly undecided = new Slots({ total: 2_048, each: 512, base: 64 });
  /** Bytes that wait for slow receivers. */
  readonly unsent = new Slots({ total: 256 * MIB, each: 64 * MIB, base: MIB });

  constructor(descriptors = descriptorLimit() ?? 1_024) {
    const total = Math.min(16_384, Math.max(64, Math.floor((descriptors - OTHER_DESCRIPTORS) / 2)));
    const half = Math.floor(total / 2);
    this.open = new Slots({ total: half + half / 2, each: half, base: Math.min(128, Math.ceil(total / 64)) });
    this.openOfSandbox = new Slots({ total, each: Math.min(4_096, half) });
  }

  /** `decided`: the first bytes are judged. */
  acquire({ orgId, id }: SandboxSettings): { release: Release; decided: Release } | undefined {
    const decided = this.undecided.acquire(orgId);
    const ofOrg = decided && this.open.acquire(orgId);
    const ofSandbox = ofOrg && this.openOfSandbox.acquire(id);
    if (!decided || !ofOrg || !ofSandbox) {
      decided?.();
      ofOrg?.();
      return undefined;
    }
    const release = () => {
      decided();
      ofOrg();
      ofSandbox();
    };
    return { release, decided };
  }
}
