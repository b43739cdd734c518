import { shortInstant } from '../../lib/instant.js';
import type { SignedCheckpoint, SignedDrop } from '../log/signed-text.js';
import type { ExportLine } from './parse-line.js';

export function formatExportLine(line: ExportLine): string {
  return `${JSON.stringify(toLine(line))}\n`;
}

function toLine(line: ExportLine) {
  if ('begin' in line) {
    const { org_id, seq, link } = line.begin;
    return { log: { org_id, after_seq: seq, link: encode(link, 'hex') } };
  }
  if ('end' in line) return { end: toEnd(line.end) };
  if ('checkpoint' in line) return { checkpoint: toEnd(line.checkpoint) };
  if ('drop' in line) {
    const { dropped_before, base_seq, base_link } = line.drop;
    const base = {
      dropped_before: shortInstant(dropped_before),
      base_seq,
      base_link: encode(base_link, 'hex'),
    };
    return { drop: { ...toSigned(line.drop), ...base } };
  }
  const { seq, event_id: id, occurred_at, leaf, unmarked, link, event } = line.entry;
  const flag = unmarked ? { unmarked: true } : {};
  const hashes = { leaf: encode(leaf, 'hex'), ...flag, link: encode(link, 'hex') };
  const at = { seq, id, timestamp: shortInstant(occurred_at), ...hashes };
  if (!event) return { ...at, dropped: true };
  const { org_id, category, event_type, actor, payload, resource_id } = event;
  return { ...at, org_id, category, event_type, actor, payload, resource_id };
}

function toEnd(end: SignedCheckpoint) {
  return { ...toSigned(end), marked_from: end.marked_from };
}

function toSigned({ org_id, seq, link, at, key_id, signature }: SignedCheckpoint | SignedDrop) {
  const text = { link: encode(link, 'hex'), signature: encode(signature, 'base64') };
  return { org_id, seq, at: shortInstant(at), key_id, ...text };
}

function encode({ buffer, byteOffset, length }: Uint8Array, encoding: 'hex' | 'base64'): string {
  return Buffer.from(buffer, byteOffset, length).toString(encoding);
}
