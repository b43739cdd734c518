import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig, type Flags } from '../../src/config/load.js';
import { OPTION_NAMES } from '../../src/config/options.js';
import { ExplainedError } from '../../src/lib/explained-error.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-config-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let files = 0;
function makeFile(text: string, mode = 0o600): string {
  files += 1;
  const path = join(folder, `config-${files}.yaml`);
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

function makeDataDir(text: string): string {
  files += 1;
  const dataDir = join(folder, `data-${files}`);
  mkdirSync(dataDir);
  writeFileSync(join(dataDir, 'sandkeep.yaml'), text, { mode: 0o600 });
  return dataDir;
}

function refusalOf(flags: Flags, env: Record<string, string> = {}): string {
  try {
    loadConfig(OPTION_NAMES, flags, env);
  } catch (error) {
    expect(error).toBeInstanceOf(ExplainedError);
    return (error as Error).message;
  }
  throw new Error('the configuration was accepted');
}

describe('a fault in the file is an error', () => {
  test.each([
    ['prot: 1', 'there is no option "prot": did you mean "port"?'],
    ['rate_limit: 1', 'there is no option "rate_limit": did you mean "rate-limit"?'],
    ['config: x.yaml', 'there is no option "config"'],
    ['constructor: 1', 'there is no option "constructor"'],
    ['port: 99999', 'port is 99999; it must be a port from 0 to 65535'],
    ['port: [1]', 'port is [1]; it must be a port from 0 to 65535'],
    ['port:', 'port has no value; it must be a port from 0 to 65535'],
    ['host: 1.10', 'host is 1.1; it must be an address or a host name'],
    ['log-level: loud', 'log-level is "loud"; it must be one of "debug"'],
    ['webhook-http: 7', 'webhook-http is 7; it must be true or false'],
    ['webhook-allow: [7]', 'webhook-allow is [7]; it must be addresses and CIDR blocks'],
    ['event-keys: [S3cret]', 'event-keys is not valid; it must be keys in base64'],
    ['- port', 'must have a line for each option, such as "port: 8080"'],
    ['port: 1\nport: 2', 'is not valid YAML: duplicate key in line 2, column 1'],
    ['event-keys: *S3cret', 'has an alias of YAML: write the value itself'],
    ['secret-keys: "S3cret', 'is not valid YAML: missing char in line 2'],
    ['a: &a [1]\nport: *a', 'has an alias of YAML'],
  ])('%j', (text, sentence) => {
    const config = makeFile(`${text}\n`);
    const refusal = refusalOf({ config });
    expect(refusal).toContain(sentence);
    expect(refusal).toContain(config);
    expect(refusal).not.toContain('S3cret');
  });

  test('every fault is named at once', () => {
    expect(refusalOf({ config: makeFile('prot: 1\nport: x\n') }).split('\n')).toEqual([
      expect.stringContaining('"prot"'),
      expect.stringContaining('port is "x"'),
    ]);
    expect(refusalOf({ port: 'x' }, { SANDKEEP_RUNTIME: 'y' }).split('\n')).toEqual([
      expect.stringContaining('--port is "x"'),
      expect.stringContaining('SANDKEEP_RUNTIME is "y"'),
    ]);
  });

  test('a file that is named and missing, or a directory', () => {
    expect(refusalOf({ config: '/nonexistent.yaml' })).toContain(
      'there is no configuration file /nonexistent.yaml: name another with --config',
    );
    expect(refusalOf({ config: folder })).toContain('cannot read the configuration file');
  });

  test('the file in the data directory cannot move the data directory', () => {
    expect(refusalOf({ dataDir: makeDataDir('data-dir: elsewhere\n') })).toContain(
      'data-dir cannot be in the data directory itself: use --data-dir',
    );
  });
});

describe('a file that others can use is refused', () => {
  const secret = 'event-keys: abc\n';
  const url = (user: string) => `database-url: postgres://${user}@db.example/sandkeep\n`;

  test.each([
    [secret, 0o644, 'holds secrets'],
    [secret, 0o660, 'holds secrets'],
    [url('keeper:pw'), 0o604, 'holds secrets'],
    ['port: 1\n', 0o666, 'can be changed by everybody'],
  ])('%j with mode %o', (text, mode, sentence) => {
    expect(refusalOf({ config: makeFile(text, mode) })).toContain(sentence);
  });

  test.each([
    [secret, 0o640],
    [secret, 0o400],
    [url('keeper'), 0o644],
    ['port: 1\n', 0o664],
  ])('%j with mode %o is accepted', (text, mode) => {
    const config = makeFile(text, mode);
    expect(loadConfig(OPTION_NAMES, { config }, {}).file).toBe(config);
  });

  test.skipIf(process.getuid?.() !== 0)('in a data directory, a file of a user who does not own it', () => {
    const dataDir = makeDataDir('port: 1\n');
    chownSync(join(dataDir, 'sandkeep.yaml'), 65_534, 65_534);
    expect(refusalOf({ dataDir })).toContain('belongs to another user than the data directory');
    chownSync(dataDir, 65_534, 65_534);
    expect(loadConfig(OPTION_NAMES, { dataDir }, {}).values.port).toBe(1);
  });
});
