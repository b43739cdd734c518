import { expect, test } from 'vitest';
import { templateFields, type TemplateConfig } from '../../src/spec/template-config.js';
import { digestsOf } from '../../src/templates/build/digests.js';
import { baseOf, planBuild, type Plan } from '../../src/templates/build/plan.js';
import type { ContextEntry } from '../../src/templates/context/entries.js';
import { DockerfileError } from '../../src/templates/dockerfile/error.js';
import { parseDockerfile } from '../../src/templates/dockerfile/parse.js';

const IMAGE = { env: ['PATH=/usr/bin', 'HOME=/root'], user: 'app', workdir: '/srv' };

function contextOf(paths: Record<string, string>): ReadonlyMap<string, ContextEntry> {
  return new Map(
    Object.entries(paths).map(([path, content]) => {
      const type = content === 'directory' ? 'directory' : 'file';
      return [path, { path, type, mode: 0o644, size: content.length, position: 0, content }];
    }),
  );
}

const pause = async () => Promise.resolve();

interface Input {
  args?: Record<string, string>;
  context?: Record<string, string>;
  config?: TemplateConfig;
}

async function plan(text: string, { args = {}, context = {}, config }: Input = {}): Promise<Plan> {
  const base = { image: IMAGE, ...(config && { config }) };
  return planBuild(parseDockerfile(text), base, new Map(Object.entries(args)), contextOf(context), pause);
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
  const file = parseDockerfile('ARG V=1\nARG N=python:$V\nFROM ${N}');
  expect(baseOf(file, new Map())).toBe('python:1');
  expect(baseOf(file, new Map([['V', '3']]))).toBe('python:3');
  expect(() => baseOf(parseDockerfile('FROM $NONE'), new Map())).toThrow(DockerfileError);
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

test('the digest of a step depends on all before it and on its inputs, and on nothing else', async () => {
  const digests = async (text: string, context = CONTEXT, base = 'base') =>
    digestsOf(base, (await plan(`FROM image\n${text}`, { context })).steps, pause);
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
