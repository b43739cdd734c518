import type { Denial } from './protocol.js';

/** A refusal that repeats within it is counted, and told at its end. */
const REPEAT_MS = 10_000;
/** Different refusals of one sandbox in that time. The others are counted together. */
const MOST_OF_SANDBOX = 64;

interface Told {
  denial: Denial;
  /** Refusals that were not told yet. */
  repeats: number;
}

/**
 * Tells refusals: the first of a kind at once, equal ones together after some seconds. A sandbox that is refused a
 * million times costs the service a few lines.
 */
export class Denials {
  private readonly bySandbox = new Map<string, Map<string, Told>>();

  constructor(private readonly tell: (denial: Denial) => void) {}

  add(denial: Denial): void {
    const told = this.bySandbox.get(denial.sandbox) ?? new Map<string, Told>();
    this.bySandbox.set(denial.sandbox, told);
    const key = keyOf(denial);
    const known = told.get(key);
    if (known) known.repeats += 1;
    else if (told.size < MOST_OF_SANDBOX || denial.terminates === true) {
      told.set(key, { denial, repeats: 0 });
      this.tell(denial);
    } else this.addToOthers(told, denial);
  }

  /** Tells the repeats. To be called each `REPEAT_MS`. */
  flush(): void {
    for (const told of this.bySandbox.values())
      for (const { denial, repeats } of told.values())
        if (repeats > 0) this.tell({ ...denial, count: repeats });
    this.bySandbox.clear();
  }

  static readonly flushMs = REPEAT_MS;

  private addToOthers(told: Map<string, Told>, { sandbox, at, kind, protocol }: Denial): void {
    const key = `others ${kind} ${protocol}`;
    const others = told.get(key);
    const reason = 'further refusals, too many to name';
    if (others) others.repeats += 1;
    else told.set(key, { denial: { sandbox, at, kind, protocol, reason }, repeats: 1 });
  }
}

function keyOf({ kind, protocol, name, address, port, rule, secret, reason }: Denial): string {
  return JSON.stringify([kind, protocol, name, address, port, rule, secret, reason]);
}
