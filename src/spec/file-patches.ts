import { Buffer } from 'node:buffer';
import type { FastifyRequest } from 'fastify';
import { ByteList } from '../http/byte-list.js';
import type { Patch } from './patch-schema.js';

/** Turns the long contents of file patches, which the schema does not know, into base64. */
export async function acceptByteLists({ body }: Pick<FastifyRequest, 'body'>): Promise<void> {
  const { patches } = (body ?? {}) as { patches?: unknown };
  if (!Array.isArray(patches)) return;
  for (const patch of patches as ({ type?: unknown; content?: unknown } | null)[]) {
    if (patch?.type === 'file' && patch.content instanceof ByteList) {
      patch.content = patch.content.bytes.toString('base64');
    }
  }
}

/** A list of a million numbers would take 50 ms to parse whenever the sandbox is read. */
export function withBase64(patches: readonly Patch[]): Patch[] {
  return patches.map((patch) =>
    patch.type === 'file' && typeof patch.content !== 'string'
      ? { ...patch, content: Buffer.from(patch.content).toString('base64') }
      : patch,
  );
}
