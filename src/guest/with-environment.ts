import type { Guest } from './guest.js';

/** The guest, with `NAME=value` that its container lacks: commands get them as if the container had them. */
export function withEnvironment(guest: Guest, own: readonly string[]): Guest {
  if (own.length === 0) return guest;
  return {
    exec: (command, listener) => guest.exec({ ...command, env: merged(own, command.env) }, listener),
    files: () => guest.files(),
    connect: (address, port, listener) => guest.connect(address, port, listener),
    environment: merged(guest.environment, own),
    gone: guest.gone,
    close: () => guest.close(),
  };
}

/** Entries of `over` replace those of `base` with the same name. */
function merged(base: readonly string[], over: readonly string[]): string[] {
  const nameOf = (entry: string) => entry.split('=', 1)[0];
  const names = new Set(over.map(nameOf));
  return [...base.filter((entry) => !names.has(nameOf(entry))), ...over];
}
