import type { Guest } from './guest.js';

/**
 * The guest, with `NAME=value` and a working directory that its container lacks: commands get them as if the container
 * had them. `cwd` null: that of the container.
 */
export function withLateParts(guest: Guest, own: readonly string[], cwd: string | null): Guest {
  if (own.length === 0 && cwd === null) return guest;
  const defaults = cwd === null ? {} : { defaultCwd: cwd };
  return {
    exec: (command, listener) =>
      guest.exec({ ...command, ...defaults, env: merged(own, command.env) }, listener),
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
