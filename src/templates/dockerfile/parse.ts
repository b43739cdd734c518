import { DockerfileParser, Run, type Instruction as Parsed } from 'dockerfile-ast';
import { findUnstorable } from '../../lib/storable-text.js';
import { isArchive } from './archive.js';
import { DockerfileError } from './error.js';
import type { Dockerfile, Form, Instruction, Pair } from './instruction.js';
import { splitWords } from './words.js';

export const MOST_DOCKERFILE_BYTES = 64 * 1024;
export const MOST_INSTRUCTIONS = 200;
/** For each heredoc the parser reads the file to its end. */
const MOST_HEREDOCS = 50;
const SHOWN_CHARS = 200;

const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;
const ONE_HEREDOC = /^<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_]*)\2$/;
const SUPPORTED =
  'FROM, RUN, COPY, ADD, WORKDIR, ENV, ARG, USER, SHELL, CMD, ENTRYPOINT, LABEL and EXPOSE are supported';

type WithoutPlace<T> = T extends unknown ? Omit<T, 'line' | 'text'> : never;
type Part = WithoutPlace<Instruction>;

/** Throws DockerfileError. */
export function parseDockerfile(text: string): Dockerfile {
  if (Buffer.byteLength(text) > MOST_DOCKERFILE_BYTES) {
    throw new DockerfileError(
      1,
      `it has more than ${MOST_DOCKERFILE_BYTES} bytes: put scripts into files of the context`,
    );
  }
  if (text.includes('\0')) throw new DockerfileError(1, 'it has a NUL character: send a text in UTF-8');
  if (text.split('<<').length - 1 > MOST_HEREDOCS) {
    throw new DockerfileError(
      1,
      `it has "<<" more than ${MOST_HEREDOCS} times: put texts into files of the context`,
    );
  }
  const file = DockerfileParser.parse(text.replaceAll('\r\n', '\n'));
  const escape = file.getEscapeCharacter();
  const parsed = file.getInstructions();
  if (parsed.length > MOST_INSTRUCTIONS) {
    const line = lineOf(parsed[MOST_INSTRUCTIONS]!);
    throw new DockerfileError(
      line,
      `a Dockerfile has at most ${MOST_INSTRUCTIONS} instructions: join some, or begin with a template`,
    );
  }
  const instructions = parsed.map((one) => instructionOf(one, escape));
  checkOrder(instructions);
  return { escape, instructions };
}

function checkOrder(instructions: readonly Instruction[]): void {
  const first = instructions.find(({ type }) => type !== 'arg');
  if (first === undefined) throw new DockerfileError(1, 'there is no FROM');
  if (first.type !== 'from')
    throw new DockerfileError(first.line, 'FROM comes first: only ARG may stand above it');
}

function lineOf(parsed: Parsed): number {
  return parsed.getRange().start.line + 1;
}

function instructionOf(parsed: Parsed, escape: string): Instruction {
  const line = lineOf(parsed);
  const keyword = parsed.getKeyword();
  const source = parsed.getTextContent();
  if (source.slice(0, keyword.length).toUpperCase() !== keyword) {
    throw new DockerfileError(line, 'the name of an instruction is on one line');
  }
  const heredoc = parsed instanceof Run && parsed.getHeredocs().length > 0;
  const rest = source.slice(keyword.length);
  const content = heredoc ? rest.trim() : joinLines(rest, escape).trim();
  const text = `${keyword} ${content}`.replaceAll(/\s+/g, ' ').slice(0, SHOWN_CHARS);
  try {
    return { ...partOf(keyword, content, { escape, heredoc }), line, text };
  } catch (error) {
    if (error instanceof DockerfileError || !(error instanceof Refusal)) throw error;
    throw new DockerfileError(line, error.message);
  }
}

class Refusal extends Error {}

/**
 * A line with the escape character at its end continues on the next one. Comments and empty lines between are left out.
 */
function joinLines(text: string, escape: string): string {
  const lines = text.split('\n');
  let joined = '';
  for (const [index, line] of lines.entries()) {
    if (index > 0 && (/^\s*#/.test(line) || line.trim() === '')) continue;
    const end = line.trimEnd();
    joined += end.endsWith(escape) ? end.slice(0, -escape.length) : line;
  }
  return joined;
}

function partOf(keyword: string, content: string, how: { escape: string; heredoc: boolean }): Part {
  if (content === '') throw new Refusal(`${keyword} has no arguments: add them, or remove the line`);
  const words = () => splitWords(content, how.escape);
  switch (keyword) {
    case 'FROM':
      return fromOf(words());
    case 'RUN':
      return { type: 'run', form: runOf(content, how.heredoc) };
    case 'COPY':
    case 'ADD':
      return copyOf(keyword, content, how.escape);
    case 'ENV':
      return { type: 'env', pairs: pairsOf(keyword, content, words()) };
    case 'LABEL':
      return { type: 'label', pairs: pairsOf(keyword, content, words()) };
    case 'ARG':
      return { type: 'arg', args: words().map(argOf) };
    case 'WORKDIR':
      return { type: 'workdir', path: content };
    case 'USER':
      return { type: 'user', user: one(keyword, words()) };
    case 'SHELL': {
      const shell = jsonWords(content);
      if (!shell?.length) throw new Refusal('SHELL is a list of words, such as ["/bin/sh", "-c"]');
      return { type: 'shell', words: shell };
    }
    case 'CMD':
      return { type: 'cmd', form: formOf(content) };
    case 'ENTRYPOINT':
      return { type: 'entrypoint', form: formOf(content) };
    case 'EXPOSE':
      return { type: 'expose', ports: words() };
    default:
      throw new Refusal(`${keyword.slice(0, 40)} is not supported: ${SUPPORTED}`);
  }
}

function one(keyword: string, words: readonly string[]): string {
  if (words.length !== 1) throw new Refusal(`${keyword} has one argument`);
  return words[0]!;
}

function fromOf(words: string[]): Part {
  const [image = '', as, name, ...more] = words;
  if (image.startsWith('--'))
    throw new Refusal(`${image.split('=')[0]} of FROM is not supported: leave it out`);
  const isNamed = as?.toUpperCase() === 'AS' && name !== undefined && more.length === 0;
  if (as !== undefined && !isNamed) throw new Refusal('FROM has an image, and "AS name" at most');
  return { type: 'from', image, name: name ?? null };
}

function runOf(content: string, heredoc: boolean): Form {
  if (content.startsWith('--')) {
    throw new Refusal(`${content.split(/[\s=]/, 1)[0]} of RUN is not supported: leave it out`);
  }
  if (!heredoc) return formOf(content);
  const [first = '', ...lines] = content.split('\n');
  const [, strips, , name] = ONE_HEREDOC.exec(first.trim()) ?? [];
  // The shell reads the heredocs of a command itself.
  if (name === undefined) return { script: content };
  const script = lines.map((line) => (strips === '-' ? line.replace(/^\t+/, '') : line));
  if (script.at(-1)?.trim() === name) script.pop();
  if (script[0]?.startsWith('#!')) {
    throw new Refusal(
      'a heredoc with "#!" is not supported: put the script into the context, or name the program',
    );
  }
  return { script: `${script.join('\n')}\n` };
}

function formOf(content: string): Form {
  const words = jsonWords(content);
  return words ? { words } : { script: content };
}

/** Undefined: it is no JSON list of texts. */
function jsonWords(content: string): string[] | undefined {
  if (!content.startsWith('[')) return undefined;
  let words: string[] | undefined;
  try {
    const value: unknown = JSON.parse(content);
    const isList = Array.isArray(value) && value.every((word) => typeof word === 'string');
    words = isList ? value : undefined;
  } catch {
    return undefined;
  }
  if (findUnstorable(words) !== undefined)
    throw new Refusal('a word has U+0000, or half of a surrogate pair: remove it');
  return words;
}

function copyOf(keyword: 'COPY' | 'ADD', content: string, escape: string): Part {
  let rest = content;
  let owner: string | null = null;
  let mode: number | null = null;
  let from: string | null = null;
  for (let flag = /^--(\S+)\s*/.exec(rest); flag; flag = /^--(\S+)\s*/.exec(rest)) {
    const [name, value = ''] = flag[1]!.split(/=(.*)/s);
    if (name === 'from' && keyword === 'COPY') from = fromOfCopy(value);
    else if (name === 'chown' && value !== '') owner = value;
    else if (name === 'chmod' && /^[0-7]{3,4}$/.test(value)) mode = Number.parseInt(value, 8);
    else if (name === 'chmod') throw new Refusal('--chmod is an octal number, such as 755');
    else
      throw new Refusal(`--${name} of ${keyword} is not supported: --from of COPY, --chown and --chmod are`);
    rest = rest.slice(flag[0].length);
  }
  const words = jsonWords(rest) ?? splitWords(rest, escape);
  const sources = words.slice(0, -1);
  const target = words.at(-1);
  if (target === undefined || sources.length === 0)
    throw new Refusal(`${keyword} needs a source and a destination`);
  for (const source of sources) {
    if (source.startsWith('<<')) {
      throw new Refusal(`a heredoc of ${keyword} is not supported: put the file into the context`);
    }
    if (keyword === 'COPY') continue;
    if (/^(?:https?|ftp|git):\/\/|^git@/i.test(source)) {
      throw new Refusal('ADD of an address is not supported: download the file with RUN');
    }
    if (isArchive(source)) {
      throw new Refusal('ADD of an archive is not supported: use COPY, and unpack it with RUN');
    }
  }
  return { type: 'copy', keyword, from, sources, target, owner, mode };
}

/** As in Docker, it has no variables. */
function fromOfCopy(value: string): string {
  if (value === '') throw new Refusal('--from names a stage, an image or a template');
  if (value.includes('$'))
    throw new Refusal(
      '--from has no variables: give the image a stage, "FROM $IMAGE AS name", and name that',
    );
  return value;
}

/** `KEY=value …`, or `KEY` and the remaining text as its value. */
function pairsOf(keyword: string, content: string, words: readonly string[]): Pair[] {
  const [first = ''] = words;
  if (!first.includes('=')) {
    const value = content.slice(first.length).trim();
    if (value === '') throw new Refusal(`${keyword} is a list such as NAME=value`);
    return [{ key: keyOf(keyword, first), value }];
  }
  return words.map((word) => {
    const at = word.indexOf('=');
    if (at < 1)
      throw new Refusal(
        `${keyword} is a list such as NAME=value: "${word.slice(0, 40)}" has no name or no "="`,
      );
    return { key: keyOf(keyword, word.slice(0, at)), value: word.slice(at + 1) };
  });
}

function keyOf(keyword: string, word: string): string {
  const key = word.replaceAll(/["']/g, '');
  if (key === '' || (keyword === 'ENV' && (key.includes('$') || key.startsWith('MSB_')))) {
    throw new Refusal(`"${word.slice(0, 40)}" is no name for ${keyword}`);
  }
  return key;
}

function argOf(word: string): { name: string; value: string | null } {
  const at = word.indexOf('=');
  const name = at === -1 ? word : word.slice(0, at);
  if (!VARIABLE.test(name)) throw new Refusal(`"${name.slice(0, 40)}" is no name for ARG`);
  return { name, value: at === -1 ? null : word.slice(at + 1) };
}
