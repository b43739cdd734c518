import type { FastifyReply } from 'fastify';
import { hash } from 'node:crypto';
import { sendJson, toBody } from './send-json.js';

/** The copy is of one caller, who asks each time whether it is current. Each of these requests is authenticated. */
const HEADERS = { 'cache-control': 'private, no-cache', vary: 'authorization, cookie' };

/**
 * Sends JSON text with a strong validator: the hash of its bytes and its owner. Sends 304 to a caller that has it. So a
 * tag of one owner never matches an answer to another, also where the bytes are the same.
 */
export function sendTagged(reply: FastifyReply, text: string, owner: string): FastifyReply {
  const body = toBody(text);
  const etag = `"${hash('sha256', owner + hash('sha256', body, 'base64url'), 'base64url')}"`;
  void reply.headers(HEADERS).header('etag', etag);
  if (namesTag(reply.request.headers['if-none-match'], etag)) return reply.code(304).send();
  return sendJson(reply, body);
}

/** Whether the header `if-none-match` names the tag. Both may be weak (RFC 9110, section 13.1.2). */
export function namesTag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  const named = header.split(',').map((tag) => tag.trim());
  return named.includes('*') || named.some((tag) => withoutWeakness(tag) === withoutWeakness(etag));
}

function withoutWeakness(tag: string): string {
  return tag.startsWith('W/') ? tag.slice(2) : tag;
}
