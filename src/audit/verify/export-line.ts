import { Type, type Static } from 'typebox';
import { DateTime, Nullable, Uuid } from '../../http/schema.js';
import { compile, explainFirst } from '../../http/validation.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { parseInstant, shortInstant, type Instant } from '../../lib/instant.js';
import type { LogPosition } from '../events/hash-chain.js';
import { EventActor } from '../events/schema.js';
import type { Checkpoint, DatedPosition, DropRecord, Signature } from '../log/checkpoint.js';
import type { LogEntry } from '../log/log-entry.js';

// An exported log has one JSON object a line: the beginning, the promised end, drop records, then entries and checkpoints in order.

const Hash = Type.String({ pattern: '^[0-9a-f]{64}$' });
const Seq = Type.Integer({ minimum: 0 });
/** 64 bytes in canonical base64: the unused bits of the last letter are 0. */
const SignatureText = Type.String({ pattern: '^[A-Za-z0-9+/]{85}[AQgw]==$' });
const SignedPosition = Type.Object({
  org_id: Uuid,
  seq: Seq,
  link: Hash,
  at: DateTime,
  key_id: Type.String(),
  signature: SignatureText,
});
const signed = SignedPosition.properties;
const signedEnd = { ...signed, marked_from: Nullable(Type.Integer({ minimum: 1 })) };
const closed = { additionalProperties: false };

const BeginLine = Type.Object(
  { log: Type.Object({ org_id: Uuid, after_seq: Seq, link: Hash }, closed) },
  closed,
);
const DropLine = Type.Object(
  { drop: Type.Object({ ...signed, dropped_before: DateTime, base_seq: Seq, base_link: Hash }, closed) },
  closed,
);
/** The promised end: without it a file cut off after a checkpoint would look complete. */
const EndLine = Type.Object({ end: Type.Object(signedEnd, closed) }, closed);
const CheckpointLine = Type.Object({ checkpoint: Type.Object(signedEnd, closed) }, closed);
const entry = {
  seq: Seq,
  id: Uuid,
  timestamp: DateTime,
  leaf: Hash,
  unmarked: Type.Optional(Type.Literal(true)),
  link: Hash,
};
const DroppedLine = Type.Object({ ...entry, dropped: Type.Literal(true) }, closed);
const EventLine = Type.Object(
  {
    ...entry,
    org_id: Uuid,
    category: Type.String(),
    event_type: Type.String(),
    actor: EventActor,
    payload: Type.Unknown(),
    resource_id: Nullable(Uuid),
  },
  closed,
);

type Line =
  | Static<typeof BeginLine>
  | Static<typeof DropLine>
  | Static<typeof EndLine>
  | Static<typeof CheckpointLine>
  | Static<typeof DroppedLine>
  | Static<typeof EventLine>;

export type ExportLine =
  | { begin: LogPosition & { org_id: string } }
  | { drop: DropRecord }
  | { end: Checkpoint }
  | { checkpoint: Checkpoint }
  | { entry: LogEntry };

const schemas = {
  log: compile(BeginLine),
  drop: compile(DropLine),
  end: compile(EndLine),
  checkpoint: compile(CheckpointLine),
  dropped: compile(DroppedLine),
  entry: compile(EventLine),
};

export function formatExportLine(line: ExportLine): string {
  return `${JSON.stringify(toLine(line))}\n`;
}

function toLine(line: ExportLine): Line {
  if ('begin' in line) {
    const { org_id, seq, link } = line.begin;
    return { log: { org_id, after_seq: seq, link: link.toString('hex') } };
  }
  if ('end' in line) return { end: toEnd(line.end) };
  if ('checkpoint' in line) return { checkpoint: toEnd(line.checkpoint) };
  if ('drop' in line) {
    const { dropped_before, base_seq, base_link } = line.drop;
    const base = {
      dropped_before: shortInstant(dropped_before),
      base_seq,
      base_link: base_link.toString('hex'),
    };
    return { drop: { ...toSigned(line.drop), ...base } };
  }
  const { seq, event_id: id, occurred_at, leaf, unmarked, link, event } = line.entry;
  const flag = unmarked ? { unmarked: true as const } : {};
  const hashes = { leaf: leaf.toString('hex'), ...flag, link: link.toString('hex') };
  const at = { seq, id, timestamp: shortInstant(occurred_at), ...hashes };
  if (!event) return { ...at, dropped: true };
  const { org_id, category, event_type, actor, payload, resource_id } = event;
  return { ...at, org_id, category, event_type, actor, payload, resource_id };
}

function toEnd(end: Checkpoint) {
  return { ...toSigned(end), marked_from: end.marked_from };
}

function toSigned({ org_id, seq, link, at, key_id, signature }: Checkpoint | DropRecord) {
  const text = { link: link.toString('hex'), signature: signature.toString('base64') };
  return { org_id, seq, at: shortInstant(at), key_id, ...text };
}

export function parseExportLine(text: string, number: number): ExportLine {
  const wrong = (why: string) =>
    new ExplainedError(`line ${number} is not a line of an exported log: ${why}`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw wrong('it is not valid JSON');
  }
  const names = Object.keys(value ?? {});
  if (names.includes('filtered')) {
    throw new ExplainedError(
      'the file is a filtered export, which cannot be verified: export the log without filters',
    );
  }
  const kind = (['log', 'drop', 'end', 'checkpoint', 'dropped'] as const).find((name) =>
    names.includes(name),
  );
  const validate = schemas[kind ?? 'entry'];
  if (!validate(value)) throw wrong(explainFirst(validate.errors ?? []));
  return fromLine(value as Line, (time) => {
    const instant = parseInstant(time);
    if (instant === undefined) throw wrong(`${time} must be an RFC 3339 date-time`);
    return instant;
  });
}

function fromLine(line: Line, time: (text: string) => Instant): ExportLine {
  if ('log' in line) {
    const { org_id, after_seq, link } = line.log;
    return { begin: { org_id, seq: after_seq, link: bytes(link) } };
  }
  if ('end' in line) return { end: fromEnd(line.end, time) };
  if ('checkpoint' in line) return { checkpoint: fromEnd(line.checkpoint, time) };
  if ('drop' in line) {
    const { dropped_before, base_seq, base_link } = line.drop;
    const base = { dropped_before: time(dropped_before), base_seq, base_link: bytes(base_link) };
    return { drop: { ...fromSigned(line.drop, time), ...base } };
  }
  const { seq, id, timestamp, leaf, unmarked = false, link } = line;
  const hashes = { leaf: bytes(leaf), unmarked, link: bytes(link) };
  const at = { seq, event_id: id, occurred_at: time(timestamp), ...hashes };
  if ('dropped' in line) return { entry: { ...at, event: null } };
  const { org_id, category, event_type, actor, payload, resource_id } = line;
  const event = {
    org_id,
    id,
    occurred_at: at.occurred_at,
    category,
    event_type,
    actor,
    payload,
    resource_id,
  };
  return { entry: { ...at, event } };
}

function fromEnd(end: Static<typeof EndLine>['end'], time: (text: string) => Instant): Checkpoint {
  return { ...fromSigned(end, time), marked_from: end.marked_from };
}

function fromSigned(
  { org_id, seq, link, at, key_id, signature }: Static<typeof SignedPosition>,
  time: (text: string) => Instant,
): DatedPosition & Signature {
  const binary = { link: bytes(link), signature: Buffer.from(signature, 'base64') };
  return { org_id, seq, at: time(at), key_id, ...binary };
}

function bytes(hex: string): Buffer {
  return Buffer.from(hex, 'hex');
}
