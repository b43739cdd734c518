import { fromBase64, fromHex } from '../../lib/bytes.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { parseInstant } from '../../lib/instant.js';
import { UUID_PATTERN } from '../../lib/uuid.js';
import type { ChainEntry, ChainPosition } from '../events/chain-text.js';
import type { SignedCheckpoint, SignedDrop } from '../log/signed-text.js';
import { parseJson } from '../../lib/json.js';

// Without Node, and without a validator that compiles code, which the policy of the console forbids.

/**
 * An exported log has one JSON object a line: the beginning, the promised end, drop records, then entries and
 * checkpoints in order.
 */
export type ExportLine =
  | { begin: ChainPosition & { org_id: string } }
  | { drop: SignedDrop }
  | { end: SignedCheckpoint }
  | { checkpoint: SignedCheckpoint }
  | { entry: ChainEntry };

type Fields = Record<string, unknown>;

/** Throws ExplainedError. */
export function parseExportLine(text: string, number: number): ExportLine {
  const wrong = (why: string) =>
    new ExplainedError(`line ${number} is not a line of an exported log: ${why}`);
  const value = parseJson(text);
  if (value === undefined) throw wrong('it is not valid JSON');
  if (!isObject(value)) throw wrong('it is not an object');
  if ('filtered' in value) {
    throw new ExplainedError(
      'the file is a filtered export, which cannot be verified: export the log without filters',
    );
  }
  try {
    return parseFields(value);
  } catch (error) {
    if (error instanceof WrongField) throw wrong(error.message);
    throw error;
  }
}

class WrongField extends Error {}

function parseFields(line: Fields): ExportLine {
  for (const kind of ['log', 'drop', 'end', 'checkpoint'] as const) {
    if (!(kind in line)) continue;
    const outer = new FieldReader(line);
    const reader = new FieldReader(outer.object(kind), `${kind}.`);
    outer.finish();
    const parsed = parseKind(kind, reader);
    reader.finish();
    return parsed;
  }
  const reader = new FieldReader(line);
  const parsed = parseEntry(reader, 'dropped' in line);
  reader.finish();
  return { entry: parsed };
}

function parseKind(kind: 'log' | 'drop' | 'end' | 'checkpoint', read: FieldReader): ExportLine {
  if (kind === 'log') {
    return { begin: { org_id: read.uuid('org_id'), seq: read.count('after_seq'), link: read.hash('link') } };
  }
  const signed = {
    org_id: read.uuid('org_id'),
    seq: read.count('seq'),
    link: read.hash('link'),
    at: read.instant('at'),
    key_id: read.text('key_id'),
    signature: read.signature('signature'),
  };
  if (kind === 'drop') {
    const dropped_before = read.instant('dropped_before');
    const base = { base_seq: read.count('base_seq'), base_link: read.hash('base_link') };
    return { drop: { ...signed, dropped_before, ...base } };
  }
  const marked_from = read.orNull('marked_from', (name) => read.count(name, 1));
  const checkpoint = { ...signed, marked_from };
  return kind === 'end' ? { end: checkpoint } : { checkpoint };
}

function parseEntry(read: FieldReader, isDropped: boolean): ChainEntry {
  const at = {
    seq: read.count('seq'),
    event_id: read.uuid('id'),
    occurred_at: read.instant('timestamp'),
    leaf: read.hash('leaf'),
    unmarked: read.flag('unmarked'),
    link: read.hash('link'),
  };
  if (isDropped) {
    if (!read.flag('dropped')) throw new WrongField('dropped must be true');
    return { ...at, event: null };
  }
  const event = {
    org_id: read.uuid('org_id'),
    id: at.event_id,
    occurred_at: at.occurred_at,
    category: read.text('category'),
    event_type: read.text('event_type'),
    actor: read.object('actor'),
    payload: read.any('payload'),
    resource_id: read.orNull('resource_id', (name) => read.uuid(name)),
  };
  return { ...at, event };
}

const HASH = /^[0-9a-f]{64}$/;
/** 64 bytes in canonical base64: the unused bits of the last letter are 0. */
const SIGNATURE = /^[A-Za-z0-9+/]{85}[AQgw]==$/;

/** Reads the fields of an object by their names. Throws WrongField. */
class FieldReader {
  private readonly known = new Set<string>();

  constructor(
    private readonly fields: Fields,
    private readonly path = '',
  ) {}

  /** Refuses fields that were not read: no hash covers them. */
  finish(): void {
    const unknown = Object.keys(this.fields).find((name) => !this.known.has(name));
    if (unknown !== undefined)
      throw new WrongField(`there is no field "${this.path}${unknown.slice(0, 80)}"`);
  }

  any(name: string): unknown {
    this.known.add(name);
    if (!Object.hasOwn(this.fields, name)) throw new WrongField(`${this.path}${name} is required`);
    return this.fields[name];
  }

  text(name: string): string {
    const value = this.any(name);
    return typeof value === 'string' ? value : this.refuse(name, 'a text');
  }

  object(name: string): Fields {
    const value = this.any(name);
    return isObject(value) ? value : this.refuse(name, 'an object');
  }

  count(name: string, minimum = 0): number {
    const value = this.any(name);
    const isCount = typeof value === 'number' && Number.isSafeInteger(value) && value >= minimum;
    return isCount ? value : this.refuse(name, `a whole number of at least ${minimum}`);
  }

  /** True or missing. */
  flag(name: string): boolean {
    this.known.add(name);
    if (!Object.hasOwn(this.fields, name)) return false;
    return this.fields[name] === true || this.refuse(name, 'true');
  }

  orNull<T>(name: string, read: (name: string) => T): T | null {
    return this.any(name) === null ? null : read(name);
  }

  uuid(name: string): string {
    return this.matching(name, UUID_PATTERN, 'a UUID');
  }

  hash(name: string): Uint8Array {
    return fromHex(this.matching(name, HASH, '64 hexadecimal digits'));
  }

  signature(name: string): Uint8Array {
    return fromBase64(this.matching(name, SIGNATURE, '64 bytes in base64'));
  }

  instant(name: string): string {
    return parseInstant(this.text(name)) ?? this.refuse(name, 'an RFC 3339 date-time');
  }

  private matching(name: string, pattern: RegExp, form: string): string {
    const text = this.text(name);
    return pattern.test(text) ? text : this.refuse(name, form);
  }

  private refuse(name: string, form: string): never {
    throw new WrongField(`${this.path}${name} must be ${form}`);
  }
}

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
