import { descriptorLimit } from '../../lib/descriptor-limit.js';
import { Slots, type Release } from '../../fairness/slots.js';
import type { SandboxSettings } from '../protocol.js';

/** Listeners, standard streams, name servers. */
const OTHER_DESCRIPTORS = 1_024;
const MIB = 1024 * 1024;
/** `undecidedOfOrg`: their first bytes are awaited, so they cost nothing to open. */
export const CONNECTIONS = { total: 12_288, ofOrg: 8_192, ofSandbox: 4_096, undecidedOfOrg: 512 };
/** An organization that holds fewer may open more also when others hold all. */
const BASE = 128;

/** The connections of all, of one organization and of one sandbox. A connection has two descriptors. */
export class ConnectionLimits {
  private readonly open: Slots;
  private readonly openOfSandbox: Slots;
  private readonly undecided = new Slots({
    total: 4 * CONNECTIONS.undecidedOfOrg,
    each: CONNECTIONS.undecidedOfOrg,
    base: CONNECTIONS.undecidedOfOrg / 8,
  });
  /** Bytes that wait for slow receivers. */
  readonly unsent = new Slots({ total: 256 * MIB, each: 64 * MIB, base: MIB });

  constructor(descriptors = descriptorLimit() ?? 1_024) {
    const possible = Math.max(64, Math.floor((descriptors - OTHER_DESCRIPTORS) / 2));
    // A quarter is for organizations that hold few.
    const part = Math.min(1, (possible * 3) / 4 / CONNECTIONS.total);
    const each = Math.floor(CONNECTIONS.ofOrg * part);
    this.open = new Slots({ total: Math.floor(CONNECTIONS.total * part), each, base: Math.min(BASE, each) });
    this.openOfSandbox = new Slots({ total: Infinity, each: Math.min(CONNECTIONS.ofSandbox, each) });
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
