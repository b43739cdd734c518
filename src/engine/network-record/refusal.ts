import type { Denial } from '../../gateway/protocol.js';
import { toStorable } from '../../lib/storable-text.js';

/** The longest name of DNS, and more than every reason has: a guest chooses the names. */
const LONGEST_TEXT = 300;

/** Equal refusals of a sandbox. Times are in milliseconds since 1970. */
export interface Refusal extends Pick<Denial, 'kind' | 'protocol' | 'reason'> {
  name: string | null;
  address: string | null;
  port: number | null;
  rule: NonNullable<Denial['rule']> | null;
  secret: string | null;
  terminates: boolean;
  count: number;
  firstAt: number;
  lastAt: number;
}

/** With every text in a form that the database and a page can have. */
export function refusalOf(denial: Denial): Refusal {
  const { kind, protocol, name, address, port, rule, secret, reason, at, terminates, count } = denial;
  return {
    kind,
    protocol,
    name: short(name),
    address: short(address),
    port: port ?? null,
    rule: rule ?? null,
    secret: short(secret),
    reason: short(reason) ?? '',
    terminates: terminates ?? false,
    count: count ?? 1,
    firstAt: sane(at),
    lastAt: sane(at),
  };
}

const YEAR_9999 = Date.UTC(9999);

/** A time that the database can have. The gateway parses what strangers send, so its messages are not trusted. */
export function sane(millis: number): number {
  return millis >= 0 && millis < YEAR_9999 ? Math.trunc(millis) : Date.now();
}

/** Refusals with the same key are counted together. */
export function keyOf({ kind, protocol, name, address, port, rule, secret, reason }: Refusal): string {
  return JSON.stringify([kind, protocol, name, address, port, rule, secret, reason]);
}

export function short(text: string | undefined): string | null {
  return text === undefined ? null : toStorable(text.slice(0, LONGEST_TEXT));
}
