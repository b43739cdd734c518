import fc from 'fast-check';
import { text } from 'node:stream/consumers';
import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { Echoes } from '../../src/gateway/secrets/echoes.js';
import { EncodedTexts } from '../../src/gateway/secrets/encoded-texts.js';
import { Substitution, Violation } from '../../src/gateway/secrets/substitute.js';
import type { GatedSecret } from '../../src/gateway/protocol.js';
import { cpuTime } from '../support/cpu-time.js';

const everywhere = { headers: true, headerFields: [], basicAuth: true, query: true, body: true };
const secret = (more: Partial<GatedSecret> = {}): GatedSecret => ({
  name: 'TOKEN',
  placeholder: '$MSB_TOKEN',
  value: 'k"e/y+ü',
  allowedHosts: [{ type: 'exact', value: 'api.example.com' }],
  passthroughHosts: [],
  places: everywhere,
  onViolation: 'block_and_log',
  requireTlsIdentity: true,
  ...more,
});
const api = { name: 'api.example.com', isVerified: true, isResolved: true };
const to = (name: string) => ({ ...api, name });
const latin1 = (value: string) => Buffer.from(value).toString('latin1');
const base64 = (value: string) => Buffer.from(value).toString('base64');
const head = (headers: [string, string][], path = '/') => ({ method: 'POST', path, headers });

test('puts the value into each place that a secret allows, in the form of the place', () => {
  const substitution = new Substitution([secret()], api);
  const { value, used } = substitution.head(
    head(
      [
        ['X-Key', 'a $MSB_TOKEN b'],
        ['Authorization', `Basic ${base64('me:$MSB_TOKEN')}`],
      ],
      '/p/$MSB_TOKEN?k=%24MSB_TOKEN&l=$MSB_TOKEN',
    ),
  ) as any;
  const encoded = encodeURIComponent(secret().value);
  expect(value).toEqual({
    path: `/p/$MSB_TOKEN?k=${encoded}&l=${encoded}`,
    headers: [
      ['X-Key', `a ${latin1(secret().value)} b`],
      ['Authorization', `Basic ${base64(`me:${secret().value}`)}`],
    ],
  });
  expect(used).toEqual(['TOKEN']);
  const body = (content: string, type: string) =>
    (substitution.body(Buffer.from(content), type) as any).value.toString();
  expect(JSON.parse(body('{"a":"\\u0024MSB_TOKEN"}', 'application/json'))).toEqual({ a: secret().value });
  expect(new URLSearchParams(body('a=%24MSB_TOKEN', 'application/x-www-form-urlencoded')).get('a')).toBe(
    secret().value,
  );
  expect(body('<$MSB_TOKEN>', 'text/plain')).toBe(`<${secret().value}>`);
});

test('leaves the placeholder in places that are switched off, and for hosts that are to get it', () => {
  const request = head(
    [
      ['Authorization', 'Bearer $MSB_TOKEN'],
      ['X-Key', '$MSB_TOKEN'],
    ],
    '/?q=$MSB_TOKEN',
  );
  const only = { ...everywhere, headerFields: ['x-key'], query: false };
  const { value } = new Substitution([secret({ places: only })], api).head(request) as any;
  expect(value.headers).toEqual([
    ['Authorization', 'Bearer $MSB_TOKEN'],
    ['X-Key', latin1(secret().value)],
  ]);
  expect(value.path).toBe('/?q=$MSB_TOKEN');
  const passes = secret({ passthroughHosts: [{ type: 'wildcard', value: '*.log.example' }] });
  const passed = new Substitution([passes], to('log.example')).head(request) as any;
  expect(passed).toEqual({ value: { path: request.path, headers: request.headers }, used: [] });
});

test('refuses a placeholder on the way to another server, in each form in which it can be written', () => {
  const substitution = new Substitution([secret()], to('evil.example'));
  const requests = [
    head([['x', '$MSB_TOKEN']]),
    head([['$MSB_TOKEN', 'x']]),
    head([['authorization', `Basic ${base64('$MSB_TOKEN:')}`]]),
    head([], '/%24%4d%53B_TOKEN'),
    head([], '/?q=%24MSB_TOKEN'),
  ];
  for (const request of requests) expect(substitution.head(request)).toBeInstanceOf(Violation);
  const unverified = new Substitution([secret()], { ...api, isVerified: false });
  expect(unverified.head(requests[0]!)).toBeInstanceOf(Violation);
  expect(unverified.head(head([['x', 'y']]))).not.toBeInstanceOf(Violation);
  const clear = new Substitution([secret({ requireTlsIdentity: false })], { ...api, isVerified: false });
  expect((clear.head(requests[0]!) as any).used).toEqual(['TOKEN']);
});

test('a value without a proof of the name needs an address that the sandbox resolved for it', () => {
  const clear = [secret({ requireTlsIdentity: false })];
  const request = head([['x', '$MSB_TOKEN']]);
  const chosen = new Substitution(clear, { ...api, isVerified: false, isResolved: false });
  expect(chosen.head(request)).toBeInstanceOf(Violation);
  expect((new Substitution(clear, { ...api, isVerified: false }).head(request) as any).used).toEqual([
    'TOKEN',
  ]);
});

test('a placeholder that occurs everywhere makes no request of gigabytes', () => {
  const short = new Substitution([secret({ placeholder: 'x', value: 'v'.repeat(4_000) })], api);
  expect(short.body(Buffer.alloc(16 * 1024 ** 2, 'x'), 'application/json')).toBeInstanceOf(Violation);
  expect(short.head(head([], `/?${'x'.repeat(60_000)}`))).toBeInstanceOf(Violation);
  expect((short.body(Buffer.from('x')) as any).value.toString()).toBe('v'.repeat(4_000));
});

test('bodies of known binary types alone are not looked through', () => {
  for (const read of [
    undefined,
    '',
    'message/http',
    'multipart/mixed',
    'text/html',
    'image/svg+xml',
    'application/vnd.a+json',
  ])
    expect(Echoes.reads(read), read).toBe(true);
  for (const binary of ['image/png', 'application/octet-stream', 'application/grpc', 'application/zip'])
    expect(Echoes.reads(binary), binary).toBe(false);
});

test('long credentials are found in pieces, in time of their length', async () => {
  const written = base64('me:$MSB_TOKEN'.padEnd(40_000, 'z'));
  const substitution = new Substitution([secret({ value: 'hunter22' })], api);
  substitution.head(head([['authorization', `Basic ${written}`]]));
  const [sent] = substitution.credentials.keys();
  const echoes = new Echoes(substitution.shared, substitution.credentials);
  const halves = [sent!.slice(0, 20_000), sent!.slice(20_000)].map((half) => Buffer.from(half));
  expect(await text(Readable.from(halves).pipe(echoes.transform()))).toBe(written);
  const hostile = Array.from({ length: 16 }, () => Buffer.from(sent!.slice(0, 60).repeat(1_000)));
  // It took half a second for each piece.
  expect(await cpuTime(() => text(Readable.from(hostile).pipe(echoes.transform())))).toBeLessThan(4_000);
});

test('a value with a line break never reaches a header', () => {
  const substitution = new Substitution([secret({ value: 'a\r\nHost: evil.example' })], api);
  expect(substitution.head(head([['x', '$MSB_TOKEN']]))).toBeInstanceOf(Violation);
});

const anyText = fc
  .string({ unit: 'binary', minLength: 1, maxLength: 20 })
  .filter((value) => value.isWellFormed());
/** Writes each character in a form of its own, by other means than the code under test. */
const written = (value: string, forms: readonly number[]) =>
  Array.from(value)
    .map((point, at) => {
      const form = forms[at % forms.length]! % 3;
      if (form === 1)
        return [...Buffer.from(point)]
          .map((byte) => `%${byte.toString(16).padStart(2, '0').toUpperCase()}`)
          .join('');
      if (form === 2)
        return Array.from(
          { length: point.length },
          (_, unit) => `\\u${point.charCodeAt(unit).toString(16).padStart(4, '0')}`,
        ).join('');
      return latin1(point);
    })
    .join('');
const forms = fc.array(fc.nat(2), { minLength: 1, maxLength: 20 });

test('finds every mixture of forms of any text, also when it comes in pieces', () => {
  fc.assert(
    fc.property(anyText, forms, fc.nat(400), (value, mixture, cut) => {
      const found = written(value, mixture);
      expect(new EncodedTexts([value]).search(`x${found}y`).found.length).toBeGreaterThan(0);
      const scan = new Substitution([secret({ placeholder: value })], to('evil.example')).scanner();
      const bytes = Buffer.from(`ab${found}cd`, 'latin1');
      const at = cut % bytes.length;
      expect(scan(bytes.subarray(0, at)) ?? scan(bytes.subarray(at))).toBeInstanceOf(Violation);
    }),
    { numRuns: 300 },
  );
});

test('an echo in pieces becomes the placeholder, and nothing else changes', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.stringMatching(/^[a-c"\\/]{4,9}$/),
      fc.array(fc.stringMatching(/^[a-c"\\/]{0,5}$/), { maxLength: 6 }),
      fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 8 }),
      async (value, between, sizes) => {
        // Without a capital letter no text around can be one.
        const sent = between.join(`<${value}>`);
        const echoes = new Echoes([secret({ value, placeholder: 'X' })], new Map());
        const pieces: Buffer[] = [];
        for (let at = 0, turn = 0; at < sent.length; turn++) {
          const size = sizes[turn % sizes.length]!;
          pieces.push(Buffer.from(sent.slice(at, at + size)));
          at += size;
        }
        const whole = await text(Readable.from(pieces).pipe(echoes.transform()));
        expect(whole).toBe(echoes.replace(sent));
        expect(whole).not.toContain(value);
      },
    ),
    { numRuns: 200 },
  );
});

test('a live stream of events is not held back, and credentials that were sent return as the guest wrote them', async () => {
  const substitution = new Substitution([secret({ value: 'hunter22' })], api);
  const written = base64('me:$MSB_TOKEN');
  substitution.head(head([['authorization', `Basic ${written}`]]));
  const transform = new Echoes(substitution.shared, substitution.credentials).transform();
  transform.write('data: hunter22\n\n');
  expect(transform.read().toString()).toBe('data: $MSB_TOKEN\n\n');
  transform.end(`Basic ${base64('me:hunter22')}`);
  expect(await text(transform)).toBe(`Basic ${written}`);
});

test('texts that repeat themselves are refused or found in little time, not searched for minutes', async () => {
  const hostile: [placeholder: string, body: string][] = [
    [`${'\\'.repeat(40)}b`, '\\'.repeat(1_000_000)],
    [`${'a'.repeat(1_000)}b`, 'a'.repeat(4_000_000)],
    [`${'\\u0061'.repeat(100)}b`, '\\u0061'.repeat(500_000)],
  ];
  for (const [placeholder, body] of hostile) {
    const many = Array.from({ length: 64 }, (_, index) => secret({ placeholder: `${placeholder}${index}` }));
    const before = process.cpuUsage();
    new Substitution(many, api).body(Buffer.from(body));
    const scan = new Substitution(many, to('evil.example')).scanner();
    for (let at = 0; at < 4; at += 1) scan(Buffer.from(body.slice(0, 1_000_000)));
    const echoes = new Echoes(
      many.map((one) => ({ ...one, value: one.placeholder })),
      new Map(),
    );
    expect(typeof echoes.replace(body.slice(0, 64_000))).toBe('string');
    const transform = echoes.transform().on('error', () => undefined);
    transform.end(Buffer.from(body));
    await text(transform).catch(() => undefined);
    const { user } = process.cpuUsage(before);
    // The expressions that this search replaced took minutes and more.
    expect(user / 1_000_000).toBeLessThan(20);
  }
});

test('a placeholder that begins with another one counts as itself', () => {
  const [short, long] = [
    secret({ name: 'A', placeholder: '$A', value: 'short' }),
    secret({ name: 'AB', placeholder: '$AB', value: 'longer' }),
  ];
  const { value, used } = new Substitution([short, long], api).body(Buffer.from('$A $AB $ABC $A')) as any;
  expect([value.toString(), used]).toEqual(['short longer longerC short', ['A', 'AB']]);
});
