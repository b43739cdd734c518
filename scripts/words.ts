/** Checks the words of comments, documents and test names: STYLE.md has the rules that a program can check. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';

/** A clause ends at a colon or a semicolon too. */
const MAX_CLAUSE = 25;
/** Bounds the whole sentence, so that no colon hides a second one. */
const MAX_SENTENCE = 30;
/** Whole-line comments wrap here. Prettier wraps code at 110, and no comment. */
const MAX_COMMENT = 120;

/** Openers that hide the actor. Questions may begin with them. */
const OPENER =
  /^(?:What|Who|Whoever|Whatever|Of|One (?:that|who|which|whose|of|is|has|does|can|may|must|gets|will))\b/;
const PRONOUN = /\b(?:he|she|him|his|himself)\b/i;

/** A piece of prose: a comment, a paragraph of a document or the name of a test. */
interface Prose {
  file: string;
  line: number;
  text: string;
}

function wordFaults(): string[] {
  const code = [
    ...['src', 'test', 'bench', 'scripts', 'console'].flatMap((folder) => filesBelow(folder, '.ts')),
    ...filesBelow('console', '.tsx'),
  ];
  const documents = [
    ...filesBelow('docs', '.md'),
    ...filesBelow('src', '.md'),
    ...filesBelow('console', '.md'),
    ...filesBelow('deploy', '.md'),
    ...filesAtTop('.md'),
  ].filter((file) => file !== 'CHANGELOG.md');
  const prose = [
    ...code.flatMap((file) => [...commentsOf(file), ...testNamesOf(file)]),
    ...documents.flatMap(paragraphsOf),
  ];
  return [
    ...[...code, ...filesBelow('guest', '.c'), ...filesBelow('guest', '.h')].flatMap(wideComments),
    ...prose.flatMap(({ file, line, text }) =>
      sentencesOf(text).flatMap((sentence) =>
        faultsOf(sentence).map((fault) => `${file}:${line}: ${fault}: ${sentence}`),
      ),
    ),
  ];
}

function wideComments(file: string): string[] {
  return linesOf(file).flatMap((row, index) => {
    const isWide = row.length > MAX_COMMENT && /^\s*(?:\/\/|\/\*|\*[ /])/.test(row) && !/https?:/.test(row);
    return isWide ? [`${file}:${index + 1}: the comment is wider than ${MAX_COMMENT}: wrap it`] : [];
  });
}

function faultsOf(sentence: string): string[] {
  const faults: string[] = [];
  if (OPENER.test(sentence) && !sentence.endsWith('?'))
    faults.push('the sentence does not begin with its actor');
  if (PRONOUN.test(sentence)) faults.push('use "it" or "they"');
  if (wordsOf(sentence) > MAX_SENTENCE)
    faults.push(`${wordsOf(sentence)} words in a sentence, at most ${MAX_SENTENCE}`);
  const longest = Math.max(...sentence.split(/(?<=[:;]['")*]*)\s+/).map(wordsOf));
  if (longest > MAX_CLAUSE) faults.push(`${longest} words in a clause, at most ${MAX_CLAUSE}`);
  return faults;
}

function wordsOf(text: string): number {
  return text.split(/\s+/).filter((word) => /\w/.test(word)).length;
}

/** Code spans, links and values in quotes count as one word. */
function sentencesOf(text: string): string[] {
  const plain = text
    .replace(/`[^`]*`/g, 'code')
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/"[^"]*"/g, 'quote');
  return plain
    .split(/(?<=[.!?]['")*]*)\s+(?=\S)/)
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence !== '');
}

/** Comments of a file; lines that follow each other are one. */
function commentsOf(file: string): Prose[] {
  const found: Prose[] = [];
  let open: Prose | undefined;
  let inBlock = false;
  for (const [index, row] of linesOf(file).entries()) {
    const text = commentIn(row, inBlock);
    if (text === undefined) {
      open = undefined;
      continue;
    }
    if (/^\s*\/\*/.test(row)) {
      inBlock = true;
      open = undefined;
    }
    if (row.includes('*/')) inBlock = false;
    if (/^(?:oxlint|eslint|@|prettier-|#)/.test(text)) continue;
    const item = /^(?:[-*]|\d+\.) (.*)$/.exec(text)?.[1];
    if (open && text !== '' && item === undefined) open.text += ` ${text}`;
    else if (text !== '') found.push((open = { file, line: index + 1, text: item ?? text }));
    else open = undefined;
    if (!inBlock && row.includes('*/')) open = undefined;
  }
  return found;
}

function commentIn(row: string, inBlock: boolean): string | undefined {
  const whole =
    /^\s*(?:\/\/|\/\*\*?)\s?(.*?)\s*(?:\*\/)?$/.exec(row) ??
    (inBlock ? /^\s*\*?\s?(.*?)\s*(?:\*\/)?$/.exec(row) : null);
  return whole?.[1];
}

function testNamesOf(file: string): Prose[] {
  if (!file.endsWith('.test.ts')) return [];
  return linesOf(file).flatMap((row, index) => {
    const name = /^\s*(?:it|test|describe)(?:\.\w+)*(?:\([^'"`]*\))?\((['"`])(.*)\1/.exec(row)?.[2];
    return name === undefined
      ? []
      : [{ file, line: index + 1, text: name.replace(/^./, (first) => first.toUpperCase()) }];
  });
}

/** Paragraphs, items of lists and cells of tables; code, pictures and headings are left out. */
function paragraphsOf(file: string): Prose[] {
  const found: Prose[] = [];
  let inCode = false;
  let open: Prose | undefined;
  for (const [index, row] of linesOf(file).entries()) {
    if (row.trimStart().startsWith('```')) inCode = !inCode;
    if (!inCode && /^\s*\|/.test(row)) {
      const cells = row.split(/(?<!\\)\|/).map((cell) => cell.trim());
      found.push(...cells.map((text) => ({ file, line: index + 1, text })));
    }
    if (inCode || /^\s*(?:$|```|#|\||<|!\[)/.test(row)) {
      open = undefined;
      continue;
    }
    const item = /^\s*(?:[-*]|\d+\.|>)\s+(.*)$/.exec(row)?.[1];
    const text = (item ?? row).replace(/\*\*/g, '').trim();
    if (open && item === undefined) open.text += ` ${text}`;
    else found.push((open = { file, line: index + 1, text }));
  }
  return found;
}

function filesBelow(folder: string, ending: string): string[] {
  return readdirSync(join(PACKAGE_ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith(ending))
    .map((path) => `${folder}/${path}`)
    .toSorted();
}

function filesAtTop(ending: string): string[] {
  return readdirSync(PACKAGE_ROOT).filter((path) => path.endsWith(ending));
}

function linesOf(file: string): string[] {
  return readFileSync(join(PACKAGE_ROOT, file), 'utf8').split('\n');
}

const only = process.argv.slice(2);
const faults = wordFaults().filter(
  (fault) => only.length === 0 || only.some((path) => fault.startsWith(path)),
);
for (const fault of faults) console.error(fault);
if (faults.length > 0) {
  console.error(`${faults.length} faults; STYLE.md has the rules`);
  process.exitCode = 1;
}
