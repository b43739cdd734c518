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
import { createPrivateFile, privateFile } from '../../lib/private-file.js';
import type { EventKeys, PublicKey } from '../events/event-keys.js';
import { KEY, requireKeyText } from './signed-text.js';

/** A retired key: its public half, and for a time its mark key. */
const RETIRED = /^public ([A-Za-z0-9+/]{43}=)(?: marked ([A-Za-z0-9+/]{43}=) until (\S+))?$/;
/**
 * How long marks of the previous key are valid, in milliseconds: every process must load the new key within this time.
 */
const MARK_GRACE_MS = 7 * 86_400_000;
const MARK_BYTES = 16;
/** The DER prefixes of the 32 bytes of a key (RFC 8410). */
const PRIVATE_DER = Buffer.from('302e020100300506032b657004220420', 'hex');
const PUBLIC_DER = Buffer.from('302a300506032b6570032100', 'hex');

/** The keys as text, or a file that is created when it is missing. */
export type EventKeySource = { keys: string } | { file: string };

export function describeEventKeys(source: EventKeySource): string {
  return 'file' in source ? source.file : 'SANDKEEP_EVENT_KEYS';
}

export function eventKeySourceOf({
  eventKeys,
  eventKeysFile,
}: {
  eventKeys?: string | undefined;
  eventKeysFile: string;
}): EventKeySource {
  return eventKeys === undefined ? { file: eventKeysFile } : { keys: eventKeys };
}

/**
 * Returns a function that loads the current keys. Throws ExplainedError when they are not valid, or others may read the
 * file.
 */
export function openEventKeys(source: EventKeySource): () => EventKeys {
  if ('file' in source) {
    return privateFile(source.file, makeKeyLine, (text) => parseKeys(text, source.file));
  }
  const keys = parseKeys(source.keys, describeEventKeys(source));
  return () => keys;
}

export function findEventKeys(source: EventKeySource): EventKeys | undefined {
  return 'file' in source && !existsSync(source.file) ? undefined : openEventKeys(source)();
}

/** Keeps the public halves of older keys, and for a week the previous mark key, for events that are not sealed yet. */
export function rotateEventKey(file: string, at = now()): void {
  const [previous, ...older] = parseKeyLines(readFileSync(file, 'utf8'), file).keys;
  const until = shortInstant(addMillis(at, MARK_GRACE_MS));
  const lines = [
    `public ${base64(previous!.key.bytes)} marked ${base64(previous!.markKey!.bytes)} until ${until}\n`,
    ...older.map(({ key }) => `public ${base64(key.bytes)}\n`),
  ];
  writeFileAtomicallySync(file, `${makeKeyLine()}${lines.join('')}`, { replace: true });
}

/** Creates a file with a new key, which trusts these older ones. Throws ExplainedError when the file exists. */
export function replaceLostKeys(file: string, lost: readonly PublicKey[]): void {
  if (existsSync(file)) throw new ExplainedError(`${file} exists: its keys are not lost`);
  const older = lost.map(({ bytes }) => `public ${base64(bytes)}\n`);
  createPrivateFile(file, () => `${makeKeyLine()}${older.join('')}`);
}

export function parsePublicKey(text: string): PublicKey {
  const bytes = Buffer.from(requireKeyText(text), 'base64');
  return { id: createHash('sha256').update(bytes).digest('hex').slice(0, 16), bytes };
}

export function isSignedBy({ bytes }: PublicKey, text: string, signature: Uint8Array): boolean {
  const key = createPublicKey({ key: Buffer.concat([PUBLIC_DER, bytes]), format: 'der', type: 'spki' });
  return verify(null, Buffer.from(text), key, signature);
}

function makeKeyLine(): string {
  return `${randomBytes(32).toString('base64')}\n`;
}

interface StoredKey {
  key: PublicKey;
  markKey: MarkKey | undefined;
}

interface MarkKey {
  bytes: Buffer;
  /** Marks are valid before this instant. Undefined: always, as other processes may write with the private key. */
  until: Instant | undefined;
}

/** The first line is the private key that signs. The other lines are private keys or retired ones. */
function parseKeyLines(text: string, source: string): { current: KeyObject; keys: StoredKey[] } {
  const lines = text.split(/[\s,]*[\n,][\s,]*/).filter((line) => line !== '');
  const [first = '', ...others] = lines;
  const older = others.map((line): StoredKey => {
    const [, key, mark, end] = RETIRED.exec(line) ?? [];
    if (key === undefined) return parsePrivateLine(line, source);
    if (mark === undefined || end === undefined) return { key: parsePublicKey(key), markKey: undefined };
    const until = parseInstant(end);
    if (until === undefined)
      throw new ExplainedError(`${source}: "until ${end}" must be an RFC 3339 date-time`);
    return { key: parsePublicKey(key), markKey: { bytes: Buffer.from(mark, 'base64'), until } };
  });
  return { current: parsePrivate(first, source), keys: [parsePrivateLine(first, source), ...older] };
}

function parsePrivateLine(line: string, source: string): StoredKey {
  const key = publicOf(parsePrivate(line, source));
  const bytes = hkdfSync('sha256', Buffer.from(line, 'base64'), '', 'sandkeep event mark', 32);
  return { key, markKey: { bytes: Buffer.from(bytes), until: undefined } };
}

function parseKeys(text: string, source: string): EventKeys {
  const { current, keys } = parseKeyLines(text, source);
  const [newest] = keys;
  const markKeys = keys.flatMap(({ markKey }) => markKey ?? []);
  const [markKey] = markKeys;
  return {
    current: newest!.key,
    sign: (signed) => sign(null, Buffer.from(signed), current),
    known: keys.map(({ key }) => key),
    mark: (leaf) => markOf(markKey!.bytes, leaf),
    isMarked: (leaf, mark, at = now()) =>
      mark.length === MARK_BYTES &&
      markKeys.some(
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

function parsePrivate(line: string, source: string): KeyObject {
  if (!KEY.test(line)) {
    throw new ExplainedError(`${source} must begin with the key that signs checkpoints: 32 bytes in base64`);
  }
  const der = Buffer.concat([PRIVATE_DER, Buffer.from(line, 'base64')]);
  return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
}

function publicOf(key: KeyObject): PublicKey {
  const der = createPublicKey(key).export({ format: 'der', type: 'spki' });
  return parsePublicKey(der.subarray(PUBLIC_DER.length).toString('base64'));
}
