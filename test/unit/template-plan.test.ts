import { expect, test } from 'vitest';
import { templateFields, type TemplateConfig } from '../../src/spec/template-config.js';
import { digestsOf } from '../../src/templates/build/digests.js';
import { planStage, type Plan } from '../../src/templates/build/plan.js';
import { MOST_ITEMS_OF_TURN, type Turn } from '../../src/templates/build/turns.js';
import type { ContextEntry } from '../../src/templates/context/entries.js';
import { DockerfileError } from '../../src/templates/dockerfile/error.js';
import { parseDockerfile } from '../../src/templates/dockerfile/parse.js';
import { readStages } from '../../src/templates/dockerfile/stages.js';

const IMAGE = { env: ['PATH=/usr/bin', 'HOME=/root'], user: 'app', workdir: '/srv' };

function contextOf(paths: Record<string, string>): ReadonlyMap<string, ContextEntry> {
  return new Map(
    Object.entries(paths).map(([path, content]) => {
      const type = content === 'directory' ? 'directory' : 'file';
      return [path, { path, type, mode: 0o644, size: content.length, position: 0, content }];
    }),
  );
}

const turn: Turn = async (work) => Promise.resolve(work());

interface Input {
  args?: Record<string, string>;
  context?: Record<string, string>;
  config?: TemplateConfig;
}

async function plan(text: string, { args = {}, context = {}, config }: Input = {}): Promise<Plan> {
  return planFile(text, contextOf(context), turn, { args, config });
}

async function planFile(
  text: string,
  entries: ReadonlyMap<string, ContextEntry>,
  inTurn: Turn,
  { args = {}, config }: Pick<Input, 'args'> & { config?: TemplateConfig | undefined } = {},
): Promise<Plan> {
  const buildArgs = new Map(Object.entries(args));
  const file = readStages(parseDockerfile(text), buildArgs);
  const stage = file.stages.at(-1)!;
  const base = { image: IMAGE, ...(config && { config }) };
  const budget = { items: 0, sources: 0, chars: 0 };
  return planStage(file, { stage, base, buildArgs, entries, budget, turn: inTurn });
}

function baseOf(text: string, args: Record<string, string> = {}): unknown {
  return readStages(parseDockerfile(text), new Map(Object.entries(args))).stages[0]!.base;
}

test('variables of ENV and ARG reach the steps, and those of the image are replaced in words', async () => {
  const text = `ARG FIRST=1
FROM image
ARG FIRST
ARG GIVEN=no
ARG UNSET
ENV PATH=/opt/bin:$PATH A=$GIVEN
ENV A=2 B=$A
RUN build`;
  const { steps, config } = await plan(text, { args: { GIVEN: 'yes' } });
  expect(steps).toMatchObject([
    {
      type: 'run',
      line: 8,
      args: ['/bin/sh', '-c', 'build'],
      env: ['FIRST=1', 'GIVEN=yes', 'PATH=/opt/bin:/usr/bin', 'A=2', 'B=yes'],
      cwd: '/srv',
      user: 'app',
    },
  ]);
  expect(config.env).toEqual([
    { key: 'PATH', value: '/opt/bin:/usr/bin' },
    { key: 'A', value: '2' },
    { key: 'B', value: 'yes' },
  ]);
});

test('the image of FROM may have variables of ARG above it alone', () => {
  const text = 'ARG V=1\nARG N=python:$V\nFROM ${N}';
  expect(baseOf(text)).toEqual({ type: 'image', reference: 'python:1' });
  expect(baseOf(text, { V: '3' })).toEqual({ type: 'image', reference: 'python:3' });
  expect(() => baseOf('FROM $NONE')).toThrow(DockerfileError);
});

test('directories, users, shells and commands apply to what follows', async () => {
  const { steps, config } = await plan(`FROM image
WORKDIR sub
WORKDIR /abs
WORKDIR deep/er
USER 1000:1000
SHELL ["/bin/bash", "-c"]
RUN a
ENTRYPOINT ["/entry"]
CMD run it
LABEL a=b
EXPOSE 80 80`);
  expect(steps.map((step) => (step.type === 'workdir' ? step.path : step.type))).toEqual([
    '/srv/sub',
    '/abs',
    '/abs/deep/er',
    'run',
  ]);
  expect(steps.at(-1)).toMatchObject({
    args: ['/bin/bash', '-c', 'a'],
    cwd: '/abs/deep/er',
    user: '1000:1000',
  });
  expect(config).toEqual({
    env: [],
    workdir: '/abs/deep/er',
    user: '1000:1000',
    cmd: ['/bin/bash', '-c', 'run it'],
    entrypoint: ['/entry'],
    labels: { a: 'b' },
    exposed: ['80'],
  });
});

test('a template on a template has its values, and a new entrypoint drops its command', async () => {
  const { config: first } = await plan('FROM image\nENV A=1\nCMD ["old"]\nUSER root');
  const { config, steps } = await plan('FROM template:t:1\nRUN x\nENTRYPOINT ["/new"]', { config: first });
  expect(config).toMatchObject({
    env: [{ key: 'A', value: '1' }],
    cmd: null,
    entrypoint: ['/new'],
    user: 'root',
  });
  expect(steps[0]).toMatchObject({ env: ['A=1'], user: 'root' });
});

test('a stage on a stage has its values, variables of ARG and SHELL, and another stage has none of them', async () => {
  const text = `ARG G=1
FROM image AS one
ARG G
ARG TOKEN=default
ENV A=1
SHELL ["/bin/bash", "-c"]
RUN one
FROM one AS two
RUN $TOKEN
COPY --from=one /$TOKEN /
FROM image
COPY --from=two /$TOKEN$G /x
RUN three`;
  const buildArgs = new Map([['TOKEN', 'given']]);
  const file = readStages(parseDockerfile(text), buildArgs);
  const budget = { items: 0, sources: 0, chars: 0 };
  const planned = async (index: number, base: object = {}) => {
    const stage = file.stages[index]!;
    const entries = contextOf({});
    return planStage(file, { stage, base: { image: IMAGE, ...base }, buildArgs, entries, budget, turn });
  };
  const { steps: _, ...one } = await planned(0);
  const two = await planned(1, one);
  expect(two.steps[0]).toMatchObject({
    args: ['/bin/bash', '-c', '$TOKEN'],
    env: ['G=1', 'TOKEN=given', 'A=1'],
  });
  expect(two.steps[1]).toMatchObject({
    type: 'copy-from',
    source: { type: 'stage', index: 0 },
    paths: ['/given'],
  });
  const last = await planned(2);
  expect(last.steps).toMatchObject([{ paths: ['/'] }, { args: ['/bin/sh', '-c', 'three'], env: [] }]);
  expect(JSON.stringify(last)).not.toMatch(/given|default/);
});

const CONTEXT = {
  'a.txt': '1',
  'b.txt': '2',
  '.hidden': '3',
  src: 'directory',
  'src/main.py': '4',
  'src/deep/one.py': '5',
};

test.each<[string, string, boolean, string[]]>([
  ['COPY a.txt /dst', '/dst', false, ['a.txt→a.txt']],
  ['COPY a.txt dst/', '/srv/dst', true, ['a.txt→a.txt']],
  ['COPY *.txt ./', '/srv', true, ['a.txt→a.txt', 'b.txt→b.txt']],
  ['COPY [ab].txt ?hidden /d/', '/d', true, ['a.txt→a.txt', 'b.txt→b.txt', '.hidden→.hidden']],
  ['COPY src /dst', '/dst', true, ['src/main.py→main.py', 'src/deep/one.py→deep/one.py']],
  ['COPY src/deep /dst', '/dst', true, ['src/deep/one.py→one.py']],
  ['COPY src/*/*.py /dst/', '/dst', true, ['src/deep/one.py→one.py']],
  ['COPY /a.txt ./b.txt /d/', '/d', true, ['a.txt→a.txt', 'b.txt→b.txt']],
  ['COPY . /app', '/app', true, Object.keys(CONTEXT).map((path) => `${path}→${path}`)],
])('%s', async (instruction, target, intoDirectory, items) => {
  const { steps } = await plan(`FROM image\n${instruction}`, { context: CONTEXT });
  const [step] = steps;
  if (step?.type !== 'copy') throw new Error('it is no copy');
  expect([step.target, step.intoDirectory]).toEqual([target, intoDirectory]);
  expect(step.items.map(({ entry, to }) => `${entry.path}→${to}`)).toEqual(items);
});

test.each([
  ['COPY none /', 'is not in the context'],
  ['COPY *.zip /', 'matches nothing'],
  ['COPY ../a /', 'leads out of the context'],
  ['COPY a.txt b.txt /dst', 'ends with "/"'],
  ['COPY [a.txt /', 'without "]"'],
  ['USER "a', 'a quote has no'],
  ['USER $NONE', 'USER has no user'],
])('%s is refused by its line', async (instruction, message) => {
  await expect(plan(`FROM image\n${instruction}`, { context: CONTEXT })).rejects.toMatchObject({
    line: 2,
    message: expect.stringContaining(message) as string,
  });
});

test('a directory within another one, and one that is named twice', async () => {
  const { steps } = await plan('FROM image\nCOPY src src/deep src ./a.txt /d/', { context: CONTEXT });
  const [step] = steps;
  if (step?.type !== 'copy') throw new Error('it is no copy');
  expect(step.items.map(({ to }) => to)).toEqual(['main.py', 'deep/one.py', 'one.py', 'a.txt']);
});

test.each([
  ['the words of a Dockerfile', `FROM image\nENV A=${'x'.repeat(100)}\n${'ENV A=$A$A\n'.repeat(20)}`, 12],
  ['their sum', `FROM image\nENV A=${'x'.repeat(50_000)}\n${'LABEL l=$A\n'.repeat(5)}`, 7],
  ['quotes', `FROM image\nENV A=${'x'.repeat(40_000)}\nENV B="$A$A"`, 3],
  ['defaults', `FROM image\nENV A=${'x'.repeat(40_000)}\nENV B=\${N:-$A$A}`, 3],
  ['characters of several bytes', `FROM image\nENV A=${'\u20AC'.repeat(20_000)}\nENV B=$A$A`, 3],
])('variables that grow are refused by the line: %s', async (_, text, line) => {
  await expect(plan(text)).rejects.toMatchObject({
    line,
    message: expect.stringMatching(
      /^(a word|the words and variables up to here) .*: use .* variables/,
    ) as string,
  });
});

test('variables above FROM, arguments, and templates below are bounded too', async () => {
  const doubled = `ARG A=${'x'.repeat(100)}\n${'ARG A=$A$A\n'.repeat(20)}FROM $A`;
  expect(() => baseOf(doubled)).toThrow('a word has more than 65536 bytes');
  const given = { args: { A: 'x'.repeat(60_000) } };
  await expect(plan(`FROM image\n${'ARG A\n'.repeat(5)}`, given)).rejects.toMatchObject({ line: 6 });
  const { config } = await plan(`FROM image\nENV A=${'x'.repeat(60_000)}\nENV A2=$A A3=$A A4=$A`);
  await expect(plan(`FROM template:a:1\nENV B=$A`, { config })).rejects.toMatchObject({ line: 2 });
});

test('many variables within each other are refused, and a few are not', async () => {
  const nested = (depth: number) => `FROM image\nENV A=${'${N:-'.repeat(depth)}x${'}'.repeat(depth)}`;
  expect((await plan(nested(20))).config.env).toEqual([{ key: 'A', value: 'x' }]);
  await expect(plan(nested(5_000))).rejects.toMatchObject({
    line: 2,
    message: expect.stringContaining('variables within each other') as string,
  });
});

test('a long pattern is refused, and other work has its turn between the entries', async () => {
  const paths = Object.fromEntries(
    Array.from({ length: 3 * MOST_ITEMS_OF_TURN }, (_, index) => [`${index}`, 'x']),
  );
  const entries = contextOf(paths);
  let turns = 0;
  const counted: Turn = async (work) => {
    turns += 1;
    return turn(work);
  };
  const planned = async (pattern: string) => planFile(`FROM image\nCOPY ${pattern} /d/`, entries, counted);
  await expect(planned(`*[${'b'.repeat(60_000)}]`)).rejects.toMatchObject({
    line: 2,
    message: expect.stringContaining('more than 256 characters') as string,
  });
  expect(turns).toBe(0);
  await expect(planned(`*${'a'.repeat(200)}b`)).rejects.toMatchObject({ line: 2 });
  expect(turns).toBeGreaterThanOrEqual(3);
  await planned('.');
  expect(turns).toBeGreaterThanOrEqual(6);
});

test('the digest of a step depends on all before it and on its inputs, and on nothing else', async () => {
  const digests = async (text: string, context = CONTEXT, base = 'base', labels = {}) =>
    digestsOf(base, labels, (await plan(`FROM image\n${text}`, { context })).steps, turn);
  const text = 'RUN a\nCOPY src /src\nRUN b';
  const first = await digests(text);
  expect(await digests(`# a comment\n\n${text}\nCMD x`)).toEqual(first);
  expect(await digests(text, { ...CONTEXT, 'a.txt': 'other' })).toEqual(first);
  const changed = await digests(text, { ...CONTEXT, 'src/main.py': 'other' });
  expect([changed[0] === first[0], changed[1] === first[1], changed[2] === first[2]]).toEqual([
    true,
    false,
    false,
  ]);
  expect((await digests(`ENV A=1\n${text}`))[0]).not.toBe(first[0]);
  expect((await digests(`${text}\nRUN c`)).slice(0, 3)).toEqual(first);
  expect((await digests(text, CONTEXT, 'other')).some((one) => first.includes(one))).toBe(false);
  // A key that is narrowed to labels may change what its build leaves.
  const narrowed = await digests(text, CONTEXT, 'base', { team: 'a', part: 'b' });
  expect(narrowed.some((one) => first.includes(one))).toBe(false);
  expect(await digests(text, CONTEXT, 'base', { part: 'b', team: 'a' })).toEqual(narrowed);
});

test('a request has the values of its template where it gives no others', () => {
  const config: TemplateConfig = {
    env: [{ key: 'A', value: '1' }],
    workdir: '/w',
    user: 'u',
    cmd: ['c'],
    entrypoint: ['e'],
    labels: {},
    exposed: [],
  };
  expect(templateFields({}, config)).toEqual({
    env: [{ key: 'A', value: '1' }],
    runtime: { workdir: '/w', user: 'u', cmd: ['c'], entrypoint: ['e'] },
  });
  const own = { env: [{ key: 'A', value: '2' }], runtime: { cmd: ['x'], user: null, workdir: '/o' } };
  expect(templateFields(own, config)).toEqual({
    env: [...config.env, ...own.env],
    runtime: { workdir: '/o', user: 'u', cmd: ['x'], entrypoint: ['e'] },
  });
  const runtimeOf = (runtime: object, part: Partial<TemplateConfig> = {}) =>
    templateFields({ runtime }, { ...config, ...part }).runtime;
  expect(runtimeOf({ entrypoint: ['n'] })).toMatchObject({ cmd: ['n'], entrypoint: [] });
  expect(runtimeOf({}, { cmd: null })).toMatchObject({ cmd: ['e'], entrypoint: [] });
  expect(runtimeOf({}, { entrypoint: null })).toMatchObject({ cmd: ['c'], entrypoint: null });
});
