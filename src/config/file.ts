import {
  accessSync,
  closeSync,
  constants,
  fstatSync,
  openSync,
  readFileSync,
  statSync,
  type Stats,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { LineCounter, parseDocument } from 'yaml';
import { ExplainedError } from '../lib/explained-error.js';
import { suggestion } from '../lib/nearest.js';
import { FILE_KEYS, flagOf, keyOf } from './names.js';
import type { Option } from '../options/option.js';
import { OPTIONS, type OptionName } from './options.js';
import { printable } from './printable.js';

const NAME = 'sandkeep.yaml';

export interface ConfigFile {
  path: string;
  values: ReadonlyMap<OptionName, unknown>;
}

/**
 * Reads the file of `--config`, or the one in the data directory where it exists. Throws ExplainedError that names each
 * fault, for a file that cannot be read, and for one that others can change.
 */
export function readConfigFile(named: string | undefined, dataDir: string): ConfigFile | undefined {
  const path = named ?? join(dataDir, NAME);
  // Where the data directory itself is unusable, the command says so.
  if (named === undefined && !canEnter(dataDir)) return undefined;
  const read = readText(path);
  if (read === undefined) {
    if (named === undefined) return undefined;
    throw new ExplainedError(`there is no configuration file ${path}: name another with ${flagOf('config')}`);
  }
  const values = new Map<OptionName, unknown>();
  const faults: string[] = [];
  for (const [key, value] of Object.entries(parseFile(path, read.text))) {
    const name = FILE_KEYS.get(key);
    if (name === undefined) {
      faults.push(`${path}: there is no option "${key}": ${suggestion(key, [...FILE_KEYS.keys()])}`);
      continue;
    }
    if (name === 'dataDir' && named === undefined) {
      faults.push(`${path}: ${key} cannot be in the data directory itself: use ${flagOf(name)}`);
      continue;
    }
    const { type, secret }: Option = OPTIONS[name];
    const text = type.textOf(value, dirname(path));
    const parsed = text === undefined ? undefined : type.parse(text);
    if (parsed === undefined) faults.push(`${path}: ${explainValue(key, value, type.form, secret)}`);
    else values.set(name, parsed);
  }
  if (faults.length > 0) throw new ExplainedError(faults.join('\nsandkeep: '));
  checkMode(path, read.stats, [...values].some(isSecret));
  if (named === undefined) checkOwner(path, read.stats, dataDir);
  return { path, values };
}

/** A sentence about a value that does not have the form of its option. `name`: its flag, variable or key. */
export function explainValue(name: string, value: unknown, form: string, secret = false): string {
  if (value === null) return `${name} has no value; it must be ${form}`;
  return `${name} is ${secret ? 'not valid' : JSON.stringify(value)}; it must be ${form}`;
}

function canEnter(directory: string): boolean {
  try {
    accessSync(directory, constants.X_OK);
    return statSync(directory).isDirectory();
  } catch {
    return false;
  }
}

function readText(path: string): { text: string; stats: Stats } | undefined {
  let opened: number | undefined;
  try {
    opened = openSync(path, 'r');
    return { stats: fstatSync(opened), text: readFileSync(opened, 'utf8') };
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return undefined;
    throw new ExplainedError(`cannot read the configuration file ${path}: ${message}`, { cause });
  } finally {
    if (opened !== undefined) closeSync(opened);
  }
}

/** JSON is YAML. An error of the parser is shown by its code, as its message quotes the file. */
function parseFile(path: string, text: string): Record<string, unknown> {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const [error] = [...document.errors, ...document.warnings];
  if (error) {
    const { line, col } = lines.linePos(error.pos[0]);
    const problem = error.code.toLowerCase().replaceAll('_', ' ');
    throw new ExplainedError(`${path} is not valid YAML: ${problem} in line ${line}, column ${col}`);
  }
  let content: unknown;
  try {
    content = document.toJS({ maxAliasCount: 0 });
  } catch (cause) {
    throw new ExplainedError(
      `${path} has an alias of YAML: write the value itself, in quotes where it begins with *`,
      { cause },
    );
  }
  if (content === null) return {};
  if (typeof content !== 'object' || Array.isArray(content)) {
    throw new ExplainedError(`${path} must have a line for each option, such as "${keyOf('port')}: 8080"`);
  }
  return content as Record<string, unknown>;
}

function isSecret([name, value]: [OptionName, unknown]): boolean {
  return (OPTIONS[name] as Option).secret === true && printable(name, value) !== value;
}

/** A group may read secrets: root commonly gives a file to the group of a service with mode 0640. */
function checkMode(path: string, stats: Stats, secrets: boolean): void {
  if (!stats.isFile()) return;
  if (secrets && (stats.mode & 0o027) !== 0) {
    throw new ExplainedError(
      `${path} holds secrets, and others can read it or its group can change it: run "chmod 640 ${path}"`,
    );
  }
  if ((stats.mode & 0o002) !== 0) {
    throw new ExplainedError(`${path} can be changed by everybody: run "chmod o-w ${path}"`);
  }
}

/** A data directory may lie where everybody can create files. */
function checkOwner(path: string, { uid }: Stats, dataDir: string): void {
  const trusted = [0, process.geteuid?.(), statSync(dataDir).uid];
  if (trusted.includes(uid)) return;
  throw new ExplainedError(
    `${path} belongs to another user than the data directory: delete it, or name it with ${flagOf('config')}`,
  );
}
