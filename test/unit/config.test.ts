import fc from 'fast-check';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { serveCommand } from '../../src/cli/serve.js';
import { loadConfig, type Origin } from '../../src/config/load.js';
import { defaultText, FILE_KEYS, flagOf, keyOf, variableOf } from '../../src/config/names.js';
import {
  DEFAULT_CONFIG,
  defaultOf,
  OPTION_NAMES,
  OPTIONS,
  type OptionName,
} from '../../src/config/options.js';
import type { Option } from '../../src/options/option.js';
import { printable } from '../../src/config/printable.js';
import { unknownVariables } from '../../src/config/unknown-variables.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { DEFAULT_SETTINGS, settingsOf } from '../../src/settings.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-config-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Every option must accept at least two of these texts, so that its values tell the sources apart. */
const TEXTS = [
  'ml=research:developer',
  'ops=default:admin',
  '1',
  '2',
  '3',
  '/first',
  '/second',
  '/third',
  'true',
  'false',
  'on',
  'auto',
  'docker',
  'simulated',
  'debug',
  'warn',
  'error',
  'probe',
  'trusted',
  'shared',
  'each-organization',
  'json',
  'text',
  'ReadWriteOnce',
  'ReadWriteMany',
  'advisory',
  'enforced',
  'api',
  'worker',
  '600',
  '660',
  'http/protobuf',
  'http/json',
  'otlp',
  'none',
  'always_on',
  'always_off',
  '0.5',
  'a=1',
  'a=1,b=2',
  '10.0.0.0/8',
  '10.1.0.0/16,192.168.1.1',
  '10.200.0.0/20',
  '::1',
  '10.0.0.53',
  '2001:db8::53',
  'host',
  'metadata',
  'host,metadata',
  '',
  'http://10.0.0.5:8080',
  'https://one.example',
  'http://[::1]:80',
  'age1one',
  'age1two',
];
const parse = (name: OptionName, text: string): unknown => (OPTIONS[name] as Option).type.parse(text);
const inFile = (name: OptionName, text: string): unknown =>
  parse(name, (OPTIONS[name] as Option).type.textOf(text, folder)!);
const textsOf = (name: OptionName) => TEXTS.filter((text) => parse(name, text) !== undefined);
const IN_FILE = OPTION_NAMES.filter((name) => !(OPTIONS[name] as Option).outsideFile);

function writeFile(name: string, values: Record<string, unknown>): string {
  const path = join(folder, name);
  writeFileSync(path, JSON.stringify(values), { mode: 0o600 });
  return path;
}

describe('every option', () => {
  const help = serveCommand({}).helpInformation().replaceAll(/\s+/g, ' ');
  const page = readFileSync(join(PACKAGE_ROOT, 'docs/configuration.md'), 'utf8').replaceAll('&lt;', '<');

  test.each(OPTION_NAMES)('%s is in the help and in the documents, with its default', (name) => {
    const facts = `default: ${defaultText(name)}; env: ${variableOf(name)})`;
    expect(help).toMatch(new RegExp(` ${flagOf(name)} `));
    expect(help).toContain(facts);
    const row = page.split('\n').find((line) => line.startsWith(`| \`${flagOf(name)}\` `));
    const cells = row?.split('|').map((cell) => cell.trim());
    expect(cells?.slice(1, 5)).toEqual([
      `\`${flagOf(name)}\``,
      `\`${variableOf(name)}\``,
      (OPTIONS[name] as Option).type.form,
      defaultText(name),
    ]);
  });

  test.each(IN_FILE)('%s is read from the environment, and from the file by its key', (name) => {
    const text = textsOf(name).at(-1)!;
    const from = (flags: Record<string, string>, env: Record<string, string>) => {
      const { values, origins } = loadConfig([name], flags, env);
      return [values[name], origins[name].from];
    };
    expect(from({ config: '/dev/null' }, { [variableOf(name)]: text })).toEqual([
      parse(name, text),
      'environment',
    ]);
    const config = writeFile('one.json', { [keyOf(name)]: text });
    expect(from({ config }, {})).toEqual([inFile(name, text), 'file']);
  });

  test('accepts two texts of this test, and has a name of its own in each source', () => {
    for (const name of OPTION_NAMES) expect(textsOf(name).length, name).toBeGreaterThanOrEqual(2);
    for (const nameOf of [flagOf, variableOf, keyOf]) {
      expect(new Set(OPTION_NAMES.map((name) => nameOf(name))).size).toBe(OPTION_NAMES.length);
    }
    expect([...FILE_KEYS.values()]).toEqual(IN_FILE);
  });
});

test('a flag wins over the environment, the environment over the file, the file over the default', () => {
  const sources = fc.record({
    flag: fc.option(fc.nat(), { nil: undefined }),
    environment: fc.option(fc.nat(), { nil: undefined }),
    file: fc.option(fc.nat(), { nil: undefined }),
    /** A fault in a source that is not used harms nothing. */
    fault: fc.boolean(),
  });
  const plan = fc.record(Object.fromEntries(IN_FILE.map((name) => [name, sources])));
  let used = 0;
  fc.assert(
    fc.property(plan, (choices) => {
      const flags: Partial<Record<OptionName, string>> = {};
      const env: Record<string, string> = {};
      const file: Record<string, string> = {};
      const expected: Partial<Record<OptionName, [unknown, Origin['from']]>> = {};
      for (const name of IN_FILE) {
        const { flag, environment, file: written, fault } = choices[name]!;
        const texts = textsOf(name);
        const textAt = (index: number) => texts[index % texts.length]!;
        if (written !== undefined) {
          file[keyOf(name)] = textAt(written);
          expected[name] = [inFile(name, textAt(written)), 'file'];
        }
        if (environment !== undefined) {
          env[variableOf(name)] = textAt(environment);
          expected[name] = [parse(name, textAt(environment)), 'environment'];
        }
        if (flag !== undefined) {
          flags[name] = textAt(flag);
          expected[name] = [parse(name, textAt(flag)), 'flag'];
          if (fault && parse(name, ' nothing ') === undefined) env[variableOf(name)] = ' nothing ';
        }
      }
      flags.config = writeFile('any.yaml', file);
      const dataDir = (expected.dataDir?.[0] ?? 'sandkeep-data') as string;
      const { values, origins } = loadConfig(OPTION_NAMES, flags, env);
      for (const name of IN_FILE) {
        const [value, from] = expected[name] ?? [defaultOf(name, dataDir), 'default'];
        expect([name, values[name], origins[name].from]).toEqual([name, value, from]);
        used += from === 'default' ? 0 : 1;
      }
    }),
  );
  expect(used).toBeGreaterThan(0);
});

test('an advertised address is an origin of http or https', () => {
  for (const text of [
    '',
    'one.example',
    'ftp://a',
    'http://a/b',
    'http://a?b',
    'http://a#b',
    'http://u:p@a',
  ]) {
    expect([text, parse('advertiseUrl', text)]).toEqual([text, undefined]);
  }
  expect(parse('advertiseUrl', 'https://One.example:443/')).toBe('https://one.example');
});

test('the defaults of options are the defaults of settings', () => {
  expect(DEFAULT_SETTINGS.rateLimit).toBe(OPTIONS.rateLimit.default);
  const changed = settingsOf(
    { ...DEFAULT_CONFIG, rateLimit: 7, volumePurgeHours: 2, webhookHttp: true },
    null,
  );
  expect(changed).toMatchObject({ rateLimit: 7, volumePurgeAfterMs: 7_200_000 });
  expect(changed.webhooks.reach).toEqual({ allow: [], http: true });
});

test.each([
  ['SANDKEEP_PROT', 'did you mean SANDKEEP_PORT?'],
  ['SANDKEEP_RATELIMIT', 'did you mean SANDKEEP_RATE_LIMIT?'],
  ['SANDKEEP_DATABASE_URL', 'did you mean DATABASE_URL?'],
  ['SANDKEEP_BANANA', 'docs/configuration.md lists them'],
])('the unknown variable %s is a warning', (variable, hint) => {
  const env = { [variable]: 'S3cret', SANDKEEP_PORT: '1', OTHER: 'x' };
  expect(unknownVariables(env)).toEqual([`the environment variable ${variable} is not an option; ${hint}`]);
});

test('the variables of commands that are clients of the API are known', () => {
  expect(unknownVariables({ SANDKEEP_URL: 'https://one.example', SANDKEEP_API_KEY: 'S3cret' })).toEqual([]);
});

describe('a secret is never printable', () => {
  test.each([
    ['postgres://user:S3cret@host:5432/db', 'postgres://user:(hidden)@host:5432/db'],
    ['postgresql://user@host/db?password=S3cret', 'postgresql://user@host/db?(hidden)'],
    ['postgres:///db', 'postgres:///db'],
    ['postgres://user:S3cret@one:1,two:2/db', 'postgres://user:(hidden)@one:1,two:2/db'],
    ['postgres://user:S3@cret/pass@host/db', '(hidden)'],
    ['postgres://user:S3/cret@host/db', '(hidden)'],
    ['postgres:user:S3cret@host', '(hidden)'],
    ['S3cret', '(hidden)'],
  ])('the URL of a database: %s', (url, shown) => {
    expect(printable('databaseUrl', url)).toBe(shown);
  });

  test('with any password', () => {
    const password = fc.stringMatching(/^[!-~]{1,20}$/).map((text) => `S3cret${text}S3cret`);
    fc.assert(
      fc.property(password, (text) => {
        expect(printable('databaseUrl', `postgres://user:${text}@host/db`)).not.toContain('S3cret');
        expect(printable('eventKeys', text)).toBe('(hidden)');
      }),
    );
  });
});

test('a variable of the tests is no warning', () => {
  expect(unknownVariables({ SANDKEEP_TEST_DOCKER: 'required', SANDKEEP_TEST: 'x' })).toHaveLength(1);
});
