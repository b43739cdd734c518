import type { IncomingMessage } from 'node:http';

/** A path without its prefix. `prefix` + `url` is split into the same two again. */
export interface SplitPath {
  prefix: string;
  url: string;
}

const prefixes = new WeakMap<IncomingMessage, string>();

/** The part of the path that the server removed before it looked for a route. Empty: none. */
export function prefixOf(request: IncomingMessage): string {
  return prefixes.get(request) ?? '';
}

/** Returns the path without its prefix, and keeps the prefix. */
export function removePrefix(
  request: IncomingMessage,
  url: string,
  split: (url: string) => SplitPath | undefined,
): string {
  const parts = split(url);
  if (!parts) return url;
  prefixes.set(request, parts.prefix);
  return parts.url;
}
