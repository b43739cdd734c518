import { expect, test } from 'vitest';
import { parseDockerfile } from '../../src/templates/dockerfile/parse.js';
import {
  MOST_STAGES,
  neededStages,
  readStages,
  sourcesOf,
  targetOf,
  type Stages,
} from '../../src/templates/dockerfile/stages.js';

const read = (text: string, args: Record<string, string> = {}): Stages =>
  readStages(parseDockerfile(text), new Map(Object.entries(args)));
const needed = (text: string, target: string | null = null) => {
  const file = read(text);
  return neededStages(file, targetOf(file, target)!).map(({ index }) => index);
};

const FILE = `ARG V=1
FROM python:$V AS Build
RUN a
FROM debian AS unused
RUN b
FROM build AS test
COPY --from=unused /x /
FROM alpine
COPY --from=build /a /
COPY --from=0 /b /
COPY --from=busybox:1 /c /
COPY --from=template:tools:2 /d /
COPY e /`;

test('a stage begins with an image, a template or an earlier stage, and copies from them', () => {
  const { stages, globals } = read(FILE, { V: '3' });
  expect([...globals]).toEqual([['V', '3']]);
  expect(stages.map(({ name, base }) => [name, base])).toEqual([
    ['build', { type: 'image', reference: 'python:3' }],
    ['unused', { type: 'image', reference: 'debian' }],
    ['test', { type: 'stage', index: 0 }],
    [null, { type: 'image', reference: 'alpine' }],
  ]);
  expect(sourcesOf(stages[3]!)).toEqual([
    { type: 'image', reference: 'alpine' },
    { type: 'stage', index: 0 },
    { type: 'stage', index: 0 },
    { type: 'image', reference: 'busybox:1' },
    { type: 'template', name: 'tools', tag: '2' },
  ]);
});

test('only the stages that the target needs are built', () => {
  expect(needed(FILE)).toEqual([0, 3]);
  expect(needed(FILE, 'TEST')).toEqual([0, 1, 2]);
  expect(needed(FILE, '1')).toEqual([1]);
  const file = read(FILE);
  for (const none of ['other', '4', '-1', '']) expect(targetOf(file, none)).toBeUndefined();
});

test.each<[string, number, string]>([
  ['FROM a AS x\nFROM b AS X', 2, 'two stages have the name "x"'],
  ['FROM a AS 1x', 1, 'is no name of a stage'],
  ['FROM a AS x\nCOPY --from=X /a /', 2, '"X" is this stage or a later one'],
  ['FROM a\nCOPY --from=x /a /\nFROM b AS X', 2, '"x" is this stage or a later one'],
  ['FROM a AS x\nCOPY --from=y /a /\nFROM b AS y\nCOPY --from=x /a /', 2, '"y" is this stage or a later one'],
  ['FROM a\nCOPY --from=99999999999999999999 /a /', 2, 'there is no stage 9999999999 above'],
  ['FROM a\nCOPY --from=-1 /a /', 2, 'no stage above this one'],
  ['FROM a\nCOPY --from= /a /', 2, '--from names a stage'],
  ['FROM a\nCOPY --from=$V /a /', 2, '--from has no variables'],
  ['FROM a\nADD --from=0 /a /', 2, '--from of ADD is not supported'],
  ['FROM a\nCOPY --from=0 /a /', 2, 'there is no stage 0 above'],
  ['FROM a\nCOPY --from=1 /a /\nFROM b', 2, 'there is no stage 1 above'],
  ['FROM a\nCOPY --from=scratch /a /', 2, 'scratch is not supported'],
  ['FROM a\nCOPY --from=Not/An:Image:at /a /', 2, 'no stage above this one'],
  ['FROM a\nFROM template:', 2, 'no template'],
  ['FROM a\n'.repeat(MOST_STAGES + 1), MOST_STAGES + 1, `at most ${MOST_STAGES} stages`],
])('%j is refused by its line', (text, line, message) => {
  expect(() => read(text)).toThrow(
    expect.objectContaining({ line, message: expect.stringContaining(message) as string }),
  );
});

test('a thousand stages are refused', () => {
  expect(() => read('FROM a\n'.repeat(1_000))).toThrow('at most 200 instructions');
});

test('FROM with the name of its own stage, or of a later one, is an image, so that there is no cycle', () => {
  const { stages } = read('FROM b AS a\nFROM a AS b\nFROM c AS c');
  expect(stages.map(({ base }) => base)).toEqual([
    { type: 'image', reference: 'b' },
    { type: 'stage', index: 0 },
    { type: 'image', reference: 'c' },
  ]);
});
