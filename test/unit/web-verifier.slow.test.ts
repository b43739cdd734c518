import fc from 'fast-check';
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import type { EventKeys } from '../../src/audit/events/event-keys.js';
import { genesisLink, leafOf, linkOf } from '../../src/audit/events/hash-chain.js';
import { signCheckpoint } from '../../src/audit/log/checkpoint.js';
import { parsePublicKey } from '../../src/audit/log/signing-key.js';
import { formatExportLine } from '../../src/audit/verify/export-line.js';
import type { ExportLine } from '../../src/audit/verify/parse-line.js';
import { verifyFile } from '../../src/audit/verify/verify-file.js';
import { verifyStream } from '../../src/audit/verify/verify-stream.js';
import { readWebKeys } from '../../src/audit/verify/web-crypto.js';

function makeKeys() {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const text = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32).toString('base64');
  const current = parsePublicKey(text);
  const keys = { current, sign: (signed: string) => sign(null, Buffer.from(signed), privateKey) };
  return { text, current, keys: keys as unknown as EventKeys };
}

const newest = makeKeys();
const older = makeKeys();
const stranger = makeKeys();
const ORG = '019a0000-0000-7000-8000-000000000001';
const HOSTILE = '"><script>alert(1)</script>\u2028';

interface AnyEvent {
  category: string;
  event_type: string;
  actor: { kind: 'system'; code: string; label: string };
  payload: unknown;
  resource_id: string | null;
  unmarked: boolean;
  isDropped: boolean;
  isSigned: boolean;
}

const anyEvent: fc.Arbitrary<AnyEvent> = fc.record({
  category: fc.constantFrom('sandbox', 'volume'),
  event_type: fc.oneof(fc.constant('volume_created'), fc.string({ unit: 'grapheme' })),
  actor: fc.record({ kind: fc.constant('system' as const), code: fc.string(), label: fc.string() }),
  payload: fc.jsonValue({ maxDepth: 3 }),
  resource_id: fc.option(fc.uuid()),
  unmarked: fc.boolean(),
  isDropped: fc.boolean(),
  isSigned: fc.boolean(),
});

/** `dropped`: so many entries at the beginning may be without their events. */
function exportOf(
  events: readonly AnyEvent[],
  { dropped = 0, keys = newest.keys, base = 0, marked_from = null as number | null } = {},
): string[] {
  const at = '2026-11-24T10:00:00.000000Z';
  const timeOf = (seq: number) =>
    `2026-11-${seq <= dropped ? '01' : '20'}T00:00:00.${String(seq).padStart(6, '0')}Z`;
  let link = genesisLink(ORG);
  let baseLink = link;
  const entries: ExportLine[] = [];
  events.forEach((event, index) => {
    const seq = index + 1;
    const { category, event_type, payload, resource_id, unmarked, isDropped, isSigned } = event;
    const id = `019a0000-0000-7000-8000-${String(seq).padStart(12, '0')}`;
    const content = {
      org_id: ORG,
      id,
      occurred_at: timeOf(seq),
      category,
      event_type,
      actor: event.actor,
      payload: JSON.parse(JSON.stringify(payload)),
      resource_id,
    };
    const facts = { seq, event_id: id, occurred_at: timeOf(seq), leaf: leafOf(content), unmarked };
    link = linkOf(link, { ...facts });
    if (seq === base) baseLink = link;
    if (seq <= base) return;
    entries.push({ entry: { ...facts, link, event: isDropped && seq <= dropped ? null : content } });
    const signer = seq % 2 === 0 ? older.keys : keys;
    if (isSigned && seq < events.length) {
      entries.push({ checkpoint: signCheckpoint(signer, { org_id: ORG, seq, link, at, marked_from }) });
    }
  });
  const end = signCheckpoint(keys, { org_id: ORG, seq: events.length, link, at, marked_from });
  const drop = signCheckpoint(keys, {
    org_id: ORG,
    seq: dropped,
    link,
    at,
    dropped_before: '2026-11-10T00:00:00.000000Z',
    base_seq: base,
    base_link: baseLink,
  });
  const lines: ExportLine[] = [
    { begin: { org_id: ORG, seq: base, link: baseLink } },
    { end },
    ...(dropped > 0 ? [{ drop }] : []),
    ...entries,
    { checkpoint: end },
  ];
  return lines.map(formatExportLine);
}

const anyExport = fc
  .record({
    events: fc.array(anyEvent, { minLength: 2, maxLength: 12 }),
    dropped: fc.nat(4),
    base: fc.nat(2),
    byOlder: fc.boolean(),
    marked_from: fc.constantFrom(null, null, 2),
  })
  .map(({ events, dropped, base, byOlder, marked_from }) => {
    const some = Math.min(dropped, events.length - 1);
    const keys = byOlder ? older.keys : newest.keys;
    return exportOf(events, { dropped: some, base: Math.min(base, some), keys, marked_from });
  });

type Tamper = (lines: string[]) => string;
const join = (lines: readonly string[]) => lines.join('');
const place = fc.nat(1000);
const anyTamper: fc.Arbitrary<Tamper> = fc.oneof(
  fc.constant<Tamper>(join),
  place.map(
    (at): Tamper =>
      (lines) =>
        join(lines.toSpliced(at % lines.length, 1)),
  ),
  place.map(
    (at): Tamper =>
      (lines) =>
        join(lines.toSpliced(at % lines.length, 0, lines[at % lines.length]!)),
  ),
  fc.tuple(place, place).map(([a, b]): Tamper => (lines) => {
    const [one, two] = [a % lines.length, b % lines.length];
    return join(lines.with(one, lines[two]!).with(two, lines[one]!));
  }),
  fc.nat(100_000).map(
    (at): Tamper =>
      (lines) =>
        join(lines).slice(0, at % join(lines).length),
  ),
  fc
    .tuple(fc.nat(100_000), fc.constantFrom('0', 'f', '"', ' ', '\n', 'é', '}'))
    .map(([at, letter]): Tamper => (lines) => {
      const text = join(lines);
      const where = at % text.length;
      return text.slice(0, where) + letter + text.slice(where + 1);
    }),
  // A changed event whose own hash was computed again: only the links and signatures show it.
  place.map((at): Tamper => (lines) => {
    const where = lines.findIndex((line, index) => index >= at % lines.length && line.includes('"payload"'));
    if (where === -1) return join(lines);
    const { seq, id, timestamp, leaf: _, unmarked, link, ...event } = JSON.parse(lines[where]!);
    const changed = { ...event, payload: HOSTILE };
    const occurred_at = timestamp.length === 20 ? timestamp.replace('Z', '.000000Z') : timestamp;
    const leaf = leafOf({ ...changed, id, occurred_at }).toString('hex');
    const flag = unmarked === true ? { unmarked } : {};
    return join(
      lines.with(where, `${JSON.stringify({ seq, id, timestamp, leaf, ...flag, link, ...changed })}\n`),
    );
  }),
  place.map(
    (at): Tamper =>
      (lines) =>
        join(
          lines.map((line, index) =>
            index === at % lines.length
              ? line.replace(/"signature":"[^"]*"/, `"signature":"${Buffer.alloc(64, 1).toString('base64')}"`)
              : line,
          ),
        ),
  ),
);

const failure = (error: Error) => ({ refused: error.message });

async function byServer(text: string, keys = [newest.current, older.current]) {
  const source = Readable.from([Buffer.from(text)]);
  return verifyFile(source, { keys }).then(({ verdict }) => verdict, failure);
}

async function byBrowser(
  text: string,
  size = 1000,
  keys: string | undefined = `${newest.text}  ${newest.current.id}\n${older.text}`,
) {
  const bytes = Buffer.from(text);
  const chunks = Array.from(
    { length: Math.ceil(bytes.length / size) },
    (_, at) => new Uint8Array(bytes.subarray(at * size, (at + 1) * size)),
  );
  const webKeys = keys === '' ? undefined : await readWebKeys(keys);
  return verifyStream(Readable.from(chunks), webKeys).then(
    ({ place, line, before: _before, end_key: _key, up_to: _upTo, ...verdict }) => ({ verdict, place, line }),
    (error: Error) => ({ verdict: failure(error), place: null, line: null }),
  );
}

test('the verifier of the browser gives the verdict of the server, with the same first fault', async () => {
  const verdicts = new Set<string>();
  await fc.assert(
    fc.asyncProperty(anyExport, anyTamper, fc.integer({ min: 1, max: 3000 }), async (lines, tamper, size) => {
      const text = tamper(lines);
      const expected = await byServer(text);
      const { verdict, place } = await byBrowser(text, size);
      expect(verdict).toEqual(expected);
      const wrong = 'wrong' in expected ? expected.wrong : expected.refused;
      verdicts.add((wrong ?? 'in order').replaceAll(/[0-9a-f-]*\d[0-9a-f:.TZ-]*/g, '#').slice(0, 60));
      const named = /^entry (\d+) \(/.exec(wrong ?? '');
      if (named) expect(place?.seq).toBe(Number(named[1]));
    }),
    { numRuns: 1_500 },
  );
  // The generator reaches every kind of fault.
  const reached = [...verdicts].join('\n');
  for (const kind of [
    'in order',
    'was changed',
    'was removed',
    'was inserted',
    'comes after',
    'wrong signature',
    'cut off',
    'does not follow',
    'is not a line',
  ]) {
    expect(reached).toContain(kind);
  }
});

test('the place of a fault has the recorded and the computed value', async () => {
  const lines = exportOf(
    Array.from({ length: 700 }, () => ({
      category: 'volume',
      event_type: 'volume_created',
      actor: { kind: 'system', code: 'x', label: 'x' },
      payload: { n: 1 },
      resource_id: null,
      unmarked: false,
      isDropped: false,
      isSigned: false,
    })),
  );
  const at = lines.findIndex((line) => line.startsWith('{"seq":600,'));
  const { leaf } = JSON.parse(lines[at]!);
  const found = await byBrowser(lines.with(at, lines[at]!.replace('"n":1', '"n":2')).join(''));
  expect(found).toMatchObject({ line: at + 1, place: { seq: 600, expected: leaf } });
  expect(found.place?.found).toMatch(/^[0-9a-f]{64}$/);
  expect(found.place?.found).not.toBe(leaf);
});

test('without keys the chain is verified and signatures are not; an unknown key is a fault of its own', async () => {
  const events = fc.sample(anyEvent, { numRuns: 6, seed: 1 });
  const lines = exportOf(events, { keys: stranger.keys });
  expect((await byBrowser(lines.join(''), 500, '')).verdict).toMatchObject({ wrong: null, entries: 6 });
  expect((await byBrowser(lines.join(''))).verdict).toMatchObject({ fault: 'unknown_key' });
  const cut = lines.toSpliced(2, 1).join('');
  expect((await byBrowser(cut, 500, '')).verdict).not.toMatchObject({ wrong: null });
  await expect(readWebKeys('not a key')).rejects.toThrow('is not a public key');
  const [key] = await readWebKeys(newest.text);
  expect(key!.id).toBe(
    createHash('sha256').update(Buffer.from(newest.text, 'base64')).digest('hex').slice(0, 16),
  );
});
