import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

const FOLDERS = ['src', 'test', 'docs', 'scripts', 'console', 'deploy', 'guest', 'bench', 'examples'];
const paths = [
  ...readdirSync(PACKAGE_ROOT),
  ...FOLDERS.flatMap((folder) =>
    readdirSync(join(PACKAGE_ROOT, folder), { recursive: true, encoding: 'utf8' }).map(
      (path) => `${folder}/${path}`,
    ),
  ),
].filter((path) => !path.includes('node_modules') && statSync(join(PACKAGE_ROOT, path)).isFile());
const documents = paths.filter((path) => path.endsWith('.md'));
const code = paths.filter((path) => /\.tsx?$/.test(path));

test('every link of a document leads to a file, and to a heading of it', () => {
  expect(documents.length).toBeGreaterThan(60);
  const broken = documents.flatMap((document) =>
    linksOf(textOf(document)).flatMap((link) => {
      const [path, heading] = link.split('#');
      const target =
        path === '' ? document : relative(PACKAGE_ROOT, join(PACKAGE_ROOT, dirname(document), path!));
      return leads(target, heading) ? [] : [`${document}: ${link}`];
    }),
  );
  expect(broken).toEqual([]);
});

test('docs/README.md leads to every page', () => {
  const map = 'docs/README.md';
  const named = new Set(linksOf(textOf(map)).map((link) => join('docs', link.split('#')[0]!)));
  const pages = documents.filter(
    (path) => path.startsWith('docs/') && !/^docs\/decisions\/\d/.test(path) && path !== map,
  );
  expect(pages.filter((path) => !named.has(path))).toEqual([]);
});

test('every page that a comment or a message of the code names exists, and its heading', () => {
  const broken = code.flatMap((file) =>
    [...readFileSync(join(PACKAGE_ROOT, file), 'utf8').matchAll(/\bdocs\/[\w/-]+\.md(?:#([\w-]+))?/g)]
      .filter(([named, heading]) => !leads(named.split('#')[0]!, heading))
      .map(([named]) => `${file}: ${named}`),
  );
  expect(broken).toEqual([]);
});

/** CHANGELOG.md names files of earlier releases, and X.Y.Z stands for a version. */
test('every file of the code that a document names exists', () => {
  const broken = documents
    .filter((document) => document !== 'CHANGELOG.md')
    .flatMap((document) =>
      [...readFileSync(join(PACKAGE_ROOT, document), 'utf8').matchAll(NAMED_FILE)]
        .filter(([, path]) => !path!.endsWith('X.Y.Z') && !existsSync(join(PACKAGE_ROOT, path!)))
        .map(([, path]) => `${document}: ${path}`),
    );
  expect(broken).toEqual([]);
});

const NAMED_FILE = /`((?:src|test|scripts|guest|deploy|examples|migrations)\/[\w./-]*\w\/?)`/g;

function leads(target: string, heading: string | undefined): boolean {
  if (!existsSync(join(PACKAGE_ROOT, target))) return false;
  if (heading === undefined || !target.endsWith('.md')) return true;
  return anchorsOf(target).has(heading);
}

/** The text without its blocks of code. */
function textOf(document: string): string {
  return readFileSync(join(PACKAGE_ROOT, document), 'utf8').replace(/^ *```.*?^ *```$/gms, '');
}

function linksOf(text: string): string[] {
  return [...text.replace(/`[^`\n]*`/g, '').matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, link]) => link!)
    .filter((link) => !/^[a-z]+:/.test(link));
}

/** The anchors that GitHub gives to headings, and those that stand in the page. */
function anchorsOf(document: string): Set<string> {
  const text = textOf(document);
  const seen = new Map<string, number>();
  return new Set([
    ...[...text.matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id!),
    ...[...text.matchAll(/^#+ +(.*)$/gm)].map(([, heading]) => {
      const anchor = heading!
        .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .trim()
        .replaceAll(' ', '-');
      const before = seen.get(anchor) ?? 0;
      seen.set(anchor, before + 1);
      return before === 0 ? anchor : `${anchor}-${before}`;
    }),
  ]);
}
