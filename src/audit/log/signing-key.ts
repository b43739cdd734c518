import {
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  hkdfSync,
  randomBytes,
  sign,
  timingSafeEqual,
  verify,
  type KeyObject,
} from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { writeFileAtomicallySync } from '../../lib/atomic-file.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { addMillis, now, parseInstant, shortInstant, type Instant } from '../../lib/instant.js';
import { privateFile } from '../../lib/private-file.js';
import type { EventKeys, PublicKey } from '../events/event-keys.js';

/** Ed25519, raw: 32 bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{43}=$/;
/** What is left of a key that does not sign any more: its public half, and for a while what it marked with when it was the last. */
const RETIRED = /^public ([A-Za-z0-9+/]{43}=)(?: marked ([A-Za-z0-9+/]{43}=) until (\S+))?$/;
/**
 * How long an event that was written under the key before may take into the log, in milliseconds: until all processes have the new key,
 * and one that stands still has been started again.
 */
const MARKED_UNTIL_MS = 7 * 86_400_000;
const MARK_BYTES = 16;
/** What stands before the 32 bytes in DER (RFC 8410). */
const PRIVATE_DER = Buffer.from('302e020100300506032b657004220420', 'hex');
const PUBLIC_DER = Buffer.from('302a300506032b6570032100', 'hex');

/** Where the keys come from: given as text, or a file that is made when it is missing. */
export type EventKeySource = { keys: string } | { file: string };

/** Names the place in messages. */
export function describeEventKeys(source: EventKeySource): string {
  return 'file' in source ? source.file : 'SANDKEEP_EVENT_KEYS';
}

/** Keys as text replace the file. */
export function eventKeySourceOf({
  eventKeys,
  eventKeysFile,
}: {
  eventKeys?: string | undefined;
  eventKeysFile: string;
}): EventKeySource {
  return eventKeys === undefined ? { file: eventKeysFile } : { keys: eventKeys };
}

/** Gives the keys as they are now. Throws ExplainedError when they cannot be read, or others may read the file. */
export function openEventKeys(source: EventKeySource): () => EventKeys {
  if ('file' in source) {
    return privateFile(source.file, makeKeyLine, (text) => parseKeys(text, source.file));
  }
  const keys = parseKeys(source.keys, describeEventKeys(source));
  return () => keys;
}

/** The keys of a place where there may be none, without making any. */
export function findEventKeys(source: EventKeySource): EventKeys | undefined {
  return 'file' in source && !existsSync(source.file) ? undefined : openEventKeys(source)();
}

/**
 * Puts a new key before those that are there, of which only the public halves stay; and of the last, for a week, what it marked
 * with, for events that are not in the log yet. There must be a key.
 */
export function rotateEventKey(file: string, at = now()): void {
  const [last, ...older] = readHalves(readFileSync(file, 'utf8'), file).halves;
  const until = shortInstant(addMillis(at, MARKED_UNTIL_MS));
  const lines = [
    `public ${base64(last!.key.bytes)} marked ${base64(last!.marks!.bytes)} until ${until}\n`,
    ...older.map(({ key }) => `public ${base64(key.bytes)}\n`),
  ];
  writeFileAtomicallySync(file, `${makeKeyLine()}${lines.join('')}`, { replace: true });
}

/** Reads the base64 of a public key. Throws ExplainedError. */
export function parsePublicKey(text: string): PublicKey {
  if (!KEY.test(text)) {
    throw new ExplainedError(
      `"${text}" is no public key: it is 32 bytes in base64, as "sandkeep events key" prints it`,
    );
  }
  const bytes = Buffer.from(text, 'base64');
  return { id: createHash('sha256').update(bytes).digest('hex').slice(0, 16), bytes };
}

/** The key of that id and those that came after it. All where it is unknown. `known`: the newest first. */
export function keysSince(known: readonly PublicKey[], id: string | undefined): readonly PublicKey[] {
  const at = known.findIndex((key) => key.id === id);
  return at === -1 ? known : known.slice(0, at + 1);
}

export function isSignedBy({ bytes }: PublicKey, text: string, signature: Buffer): boolean {
  const key = createPublicKey({ key: Buffer.concat([PUBLIC_DER, bytes]), format: 'der', type: 'spki' });
  return verify(null, Buffer.from(text), key, signature);
}

function makeKeyLine(): string {
  return `${randomBytes(32).toString('base64')}\n`;
}

interface Half {
  key: PublicKey;
  /** Undefined when that is gone. */
  marks: MarkKey | undefined;
}

interface MarkKey {
  bytes: Buffer;
  /** Whoever has an old one must not write events for ever. Undefined for a private key: it is there, and may be in use elsewhere. */
  until: Instant | undefined;
}

/** The first is the private key that signs; the others are private, or public ones of which only that is left. */
function readHalves(text: string, source: string): { current: KeyObject; halves: Half[] } {
  const lines = text.split(/[\s,]*[\n,][\s,]*/).filter((line) => line !== '');
  const [first = '', ...others] = lines;
  const halves = others.map((line): Half => {
    const [, key, marks, end] = RETIRED.exec(line) ?? [];
    if (key === undefined) return halfOf(line, source);
    if (marks === undefined || end === undefined) return { key: parsePublicKey(key), marks: undefined };
    const until = parseInstant(end);
    if (until === undefined) throw new ExplainedError(`${source}: "until ${end}" is no time`);
    return { key: parsePublicKey(key), marks: { bytes: Buffer.from(marks, 'base64'), until } };
  });
  return { current: readPrivate(first, source), halves: [halfOf(first, source), ...halves] };
}

function halfOf(line: string, source: string): Half {
  const key = publicOf(readPrivate(line, source));
  const marks = hkdfSync('sha256', Buffer.from(line, 'base64'), '', 'sandkeep event mark', 32);
  return { key, marks: { bytes: Buffer.from(marks), until: undefined } };
}

function parseKeys(text: string, source: string): EventKeys {
  const { current, halves } = readHalves(text, source);
  const known = halves.map(({ key }) => key);
  const marks = halves.flatMap((half) => half.marks ?? []);
  return {
    current: known[0]!,
    sign: (signed) => sign(null, Buffer.from(signed), current),
    known,
    mark: (leaf) => markOf(marks[0]!.bytes, leaf),
    isMarked: (leaf, mark, at = now()) =>
      mark.length === MARK_BYTES &&
      marks.some(
        ({ bytes, until }) =>
          (until === undefined || at < until) && timingSafeEqual(markOf(bytes, leaf), mark),
      ),
  };
}

function markOf(key: Buffer, leaf: Buffer): Buffer {
  return createHmac('sha256', key).update(leaf).digest().subarray(0, MARK_BYTES);
}

function base64(bytes: Buffer): string {
  return bytes.toString('base64');
}

function readPrivate(line: string, source: string): KeyObject {
  if (!KEY.test(line)) {
    throw new ExplainedError(`${source} must begin with the key that signs checkpoints: base64 of 32 bytes`);
  }
  const der = Buffer.concat([PRIVATE_DER, Buffer.from(line, 'base64')]);
  return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
}

function publicOf(key: KeyObject): PublicKey {
  const der = createPublicKey(key).export({ format: 'der', type: 'spki' });
  return parsePublicKey(der.subarray(PUBLIC_DER.length).toString('base64'));
}
