import { Ajv } from 'ajv';
import { createHash } from 'node:crypto';
import { Type } from 'typebox';
import { expect, test } from 'vitest';
import { Int32, Named, Nullable } from '../../src/http/schema.js';
import { serializerOf } from '../../src/http/serializer.js';
import { CAPABILITIES, type Capability } from '../../src/spec/capabilities.js';
import type { EngineAbilities } from '../../src/spec/engine-abilities.js';
import { field, group } from '../../src/spec/field.js';
import { refuse } from '../../src/spec/refuse.js';
import { SandboxSpec, SPECIFICATION, SPECIFICATION_FIELDS } from '../../src/spec/specification.js';
import { specificationOf } from '../../src/spec/table.js';
import { SPEC_FORMAT } from '../../src/spec/text.js';

const REQUEST = { name: 'web', image: { type: 'oci' as const, reference: 'python:3.12' } };
const VOLUMES = { named: new Map<string, string>(), host: undefined };

function engineWith(capabilities: readonly Capability[]): EngineAbilities {
  const bounds = { vcpus: 4, memoryMib: 4_096, smallestMemoryMib: 16, sharedCpuMillis: 0 };
  return { name: 'tiny', capabilities: new Set(capabilities), bounds };
}

/** A field of the test's own, of a kind that the table does not have. */
const priority = field({
  schema: Int32({ maximum: 9, description: 'The priority.' }),
  answer: Type.Optional(Nullable(Int32({ description: 'The priority. Null: none.' }))),
  default: 0,
  restricts: true,
  check(value, { field: at }, { name }) {
    if (value === 7) refuse(at, `the ${name} runtime has no 7`);
  },
  requires: (value) => [value > 0 && { capability: 'rlimit_priority', what: 'rank sandboxes' }],
  show: (value) => (value === 0 ? null : value),
  run: (value) => ({ labels: { priority: String(value) } }),
  seal: (value) => ({ values: { PRIORITY: String(value) } }),
});

test('an entry of the table is validated, defaulted, checked, required, stored, sealed and answered', () => {
  const extended = specificationOf({ ...SPECIFICATION_FIELDS, priority });

  const validate = new Ajv({
    strict: false,
    discriminator: true,
    formats: { int32: true, int64: true },
  }).compile(Named('Extended', extended.requestProperties));
  expect(validate({ ...REQUEST, priority: 3 })).toBe(true);
  expect(validate({ ...REQUEST, priority: 10 })).toBe(false);
  expect(validate.errors).toMatchObject([{ instancePath: '/priority' }]);
  expect(validate(REQUEST)).toBe(true);

  const able = engineWith(CAPABILITIES);
  const unable = engineWith(CAPABILITIES.filter((capability) => capability !== 'rlimit_priority'));
  extended.check({ ...REQUEST, priority: 3 }, able);
  extended.check(REQUEST, unable);
  expect(() => extended.check({ ...REQUEST, priority: 7 }, able)).toThrow('the tiny runtime has no 7');
  expect(() => extended.check({ ...REQUEST, priority: 3 }, unable)).toThrow(
    'the tiny runtime cannot rank sandboxes: leave priority out, or use a runtime that can',
  );
  expect(extended.restricting).toEqual([...SPECIFICATION.restricting, 'priority']);

  const given = extended.resolve({ ...REQUEST, priority: 3 }, VOLUMES);
  expect(given.runSpec).toMatchObject({ labels: { priority: '3' }, image: 'python:3.12' });
  expect(given.runSpec.demands).toContain('rlimit_priority');
  expect(given.spec.priority).toBe(3);
  const encode = serializerOf(Named('ExtendedAnswer', extended.answerProperties));
  expect(JSON.parse(encode(given.spec))).toMatchObject({ priority: 3, image: 'python:3.12' });
  expect(extended.secretsOf({ ...REQUEST, priority: 3 }).values).toEqual({ PRIORITY: '3' });

  const left = extended.resolve(REQUEST, VOLUMES);
  expect(left.spec.priority).toBeNull();
  expect(left.runSpec.labels).toEqual({ priority: '0' });
  expect(left.runSpec.demands).toEqual(['network']);
});

test('a field of a group has its path in refusals, and its place in the object of the answer', () => {
  const ranked = specificationOf({
    ...SPECIFICATION_FIELDS,
    rank: group({ request: { title: 'Rank', description: 'The rank.' }, fields: { priority } }),
  });
  const able = engineWith(CAPABILITIES);
  const refusal = { code: 'invalid_sandbox_config', details: { field: 'rank.priority' } };
  expect(() => ranked.check({ ...REQUEST, rank: { priority: 7 } }, able)).toThrow(
    expect.objectContaining(refusal),
  );
  expect(() => ranked.check({ ...REQUEST, rank: { priority: 2 } }, engineWith(['network']))).toThrow(
    expect.objectContaining(refusal),
  );
  expect(ranked.resolve(REQUEST, VOLUMES).spec.rank).toEqual({ priority: null });
  expect(ranked.resolve({ ...REQUEST, rank: { priority: 2 } }, VOLUMES).spec.rank).toEqual({ priority: 2 });
});

test('a field that can be left out has a default, from its schema or beside it', () => {
  expect(() => field({ schema: Int32() })).toThrow('needs a default');
  const { request, ...rules } = field({ schema: Int32({ default: 512 }) });
  expect(rules.default).toBe(512);
  expect(request).toMatchObject({ default: 512 });
});

test('the fields of requests and of answers are those of the table, each once', () => {
  const inRequest = SPECIFICATION.paths.map((path) => path.split('.')[0]);
  expect(new Set(SPECIFICATION.paths).size).toBe(SPECIFICATION.paths.length);
  expect([...new Set(inRequest)]).toEqual(Object.keys(SPECIFICATION.requestProperties));
  const { spec, runSpec } = SPECIFICATION.resolve(REQUEST, VOLUMES);
  expect(Object.keys(spec)).toEqual(expect.arrayContaining(Object.keys(SPECIFICATION.answerProperties)));
  expect(Object.keys(spec)).toHaveLength(Object.keys(SPECIFICATION.answerProperties).length);
  // Nothing that an engine reads is missing, whatever the request leaves out.
  expect(Object.entries(runSpec).filter(([, value]) => value === undefined)).toEqual([]);
  expect(runSpec).toEqual({
    image: 'python:3.12',
    pullPolicy: 'if_missing',
    vcpus: 1,
    memoryMib: 512,
    diskMib: null,
    cmd: null,
    entrypoint: null,
    user: null,
    workdir: null,
    shell: null,
    scripts: {},
    env: [],
    labels: {},
    rlimits: [],
    mounts: [],
    patches: [],
    init: null,
    securityProfile: 'default',
    networkEnabled: true,
    networkPolicy: null,
    hostname: null,
    endsWithCommand: false,
    idleTimeoutSecs: null,
    maxDurationSecs: null,
    demands: ['network'],
  });
});

/**
 * Change both together: texts of an earlier format are parsed and written again, and those of the current one are
 * answers.
 */
const SHAPE_OF_FORMAT = { format: 5, shape: 'c096ef9537db' };

test('the format of stored specifications is raised with each change of the shape of answers', () => {
  expect({ format: SPEC_FORMAT, shape: shapeOf(SandboxSpec) }).toEqual(SHAPE_OF_FORMAT);
});

/** A digest of the schema without its words for people. */
function shapeOf(schema: object): string {
  const words = new Set(['description', '$comment', 'title', 'examples']);
  const text = JSON.stringify(schema, (key, value: unknown) =>
    words.has(key) && typeof value !== 'object' ? undefined : value,
  );
  return createHash('sha256').update(text).digest('hex').slice(0, 12);
}
