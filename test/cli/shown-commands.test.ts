import type { Command } from 'commander';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { makeProgram } from '../../src/main.js';

const PROGRAM = makeProgram({});

/** In code, quotes, or a line of its own: the rest of the line, to the end of the code. */
const COMMANDS = /(?:^|[`"“$ ])sandkeep ([a-z][^`"”\n]*)/gm;

/** They name a container, a namespace, a release or a server of tools that is called "sandkeep" too. */
const OTHER_PROGRAMS = /^ *(?:kubectl|helm|claude) .*(?:\\\n.*)*$|docker exec sandkeep /gm;

/** The first fault of the words after "sandkeep". */
function faultOf(line: string): string | undefined {
  let command: Command = PROGRAM;
  const words = line.replace(/\s[#|&>].*$/, '').split(/\s+/);
  while (words.length > 0 && command.commands.length > 0) {
    const next = command.commands.find((known) => known.name() === words[0]);
    // A command with subcommands can have an argument as well.
    if (!next && command.registeredArguments.length > 0) break;
    if (!next) return `"${command.name()}" has no command "${words[0]}"`;
    command = next;
    words.shift();
  }
  const flags = words.flatMap((word) => /^--[a-z][a-z-]*/.exec(word) ?? []);
  const known = new Set(command.options.map(({ long }) => long));
  const unknown = flags.find((flag) => flag !== '--help' && !known.has(flag));
  return unknown && `"${command.name()}" has no option ${unknown}`;
}

function filesBelow(folder: string, ending: RegExp): string[] {
  return readdirSync(join(PACKAGE_ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => ending.test(name))
    .map((name) => join(folder, name));
}

test('every command that documents and the console show exists, with its options', () => {
  const files = ['README.md', ...filesBelow('docs', /\.md$/), ...filesBelow('console/src', /\.tsx?$/)];
  let count = 0;
  const faults = files.flatMap((file) =>
    [
      ...readFileSync(join(PACKAGE_ROOT, file), 'utf8').replaceAll(OTHER_PROGRAMS, '').matchAll(COMMANDS),
    ].flatMap(([, line]) => {
      count += 1;
      const fault = faultOf(line!);
      return fault === undefined ? [] : [`${file}: sandkeep ${line}: ${fault}`];
    }),
  );
  expect(count).toBeGreaterThan(40);
  expect(faults).toEqual([]);
});
