import { ERRORS } from './protocol.js';

const BY_NUMBER = new Map<number, readonly [name: string, message: string]>(
  Object.entries(ERRORS).map(([name, [number, message]]) => [number, [name, message]]),
);

export function errnoOf(name: keyof typeof ERRORS): number {
  return ERRORS[name][0];
}

export function errnoName(errno: number): string | null {
  return BY_NUMBER.get(errno)?.[0] ?? null;
}

/** As the C library words it. */
export function errnoMessage(errno: number): string {
  return BY_NUMBER.get(errno)?.[1] ?? `error ${errno}`;
}
