import type { FastifyRequest } from 'fastify';

/**
 * The words of requests that answers of the contract write in another way: `Named` for `named`, `DiskImage` for
 * `disk_image`.
 */
const WORDS: readonly [list: string, fields: readonly string[]][] = [
  ['mounts', ['type', 'format']],
  ['rlimits', ['resource']],
];

/** Accepts these words in requests, so that a part of an answer can be sent again. */
export async function acceptContractWords({ body }: Pick<FastifyRequest, 'body'>): Promise<void> {
  if (typeof body !== 'object' || body === null) return;
  for (const [list, fields] of WORDS) {
    const items = (body as Record<string, unknown>)[list];
    if (Array.isArray(items)) for (const item of items) lowerWords(item, fields);
  }
}

function lowerWords(item: unknown, fields: readonly string[]): void {
  if (typeof item !== 'object' || item === null) return;
  for (const field of fields) {
    const word = (item as Record<string, unknown>)[field];
    if (typeof word === 'string' && /^[A-Z][A-Za-z0-9]{0,30}$/.test(word)) {
      const lower = word.replaceAll(/(?<=[a-z0-9])([A-Z])/g, '_$1').toLowerCase();
      (item as Record<string, unknown>)[field] = lower;
    }
  }
}
