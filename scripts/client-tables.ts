import { OUTCOMES, RUNTIMES, type Expected, type Row, type Session } from '../test/clients/row.js';
import { SESSIONS } from '../test/clients/table.js';
import { VERSIONS } from '../test/clients/versions.js';

/** docs/client-commands.md, from the table that the tests of the official clients run. */

const HEADINGS = ['command', 'runtime', 'outcome', 'exit code', 'output'];

const HEAD = `# The official clients, command by command

This page is made from test/clients/table.ts by "npm run generate". [Use](clients.md) is on a page of its own.

\`test/clients/\` runs every line and compares the exit code and the output. It has \`msb\` and the Node SDK in version ${VERSIONS.npm} of npm,
the Python SDK and its \`msb\` in version ${VERSIONS.pypi} of PyPI. Each table is a session in an organization of its own, from top to
bottom. Output between slashes is a pattern; elsewhere it is the whole output.

Four images are used. \`sandkeep-test:busybox\` has BusyBox and no command, and \`sandkeep-test:workdir\` has the working directory
\`/etc\` besides. \`sandkeep-test:echo\` has the command \`/bin/echo hello\`. \`sandkeep-test:scratch\` has one text file and no program.`;

export function clientCommandsPage(): string {
  return `${[HEAD, ...SESSIONS.map(section)].join('\n\n')}\n`;
}

function section({ title, files = {}, rows }: Session): string {
  const blocks = Object.entries(files).map(
    ([name, text]) => `\`${name}\`:\n\n\`\`\`${name.endsWith('.yaml') ? 'yaml' : ''}\n${text}\`\`\``,
  );
  const lines = [HEADINGS, HEADINGS.map(() => '---'), ...rows.flatMap(cells)];
  const table = lines.map((line) => `| ${line.join(' | ')} |`).join('\n');
  return [`## ${title}`, ...blocks, table].join('\n\n');
}

/** One line where both runtimes have the same outcome, else one for each. */
function cells(row: Row): string[][] {
  const { simulated, docker } = row;
  const command = code(commandOf(row));
  if (simulated && simulated === docker) return [[command, 'both', ...outcome(simulated)]];
  return RUNTIMES.flatMap((runtime) => {
    const expected = row[runtime];
    return expected ? [[command, runtime, ...outcome(expected)]] : [];
  });
}

function commandOf({ client, run, typed, leavesInputOpen, ...row }: Row): string {
  if (client !== 'cli' && client !== 'newest-cli') return run;
  const keys = typed === undefined ? '' : ` (${['in a terminal', ...typed].join(' ⏎ ')})`;
  const open = leavesInputOpen === true ? ' (its standard input stays open)' : '';
  return `${pipeOf(row)}msb ${run}${keys}${open}`;
}

function pipeOf({ input, zeroes }: Pick<Row, 'input' | 'zeroes'>): string {
  if (zeroes !== undefined) return `head -c ${zeroes} /dev/zero | `;
  return input === undefined ? '' : `printf '${input.replaceAll('\n', String.raw`\n`)}' | `;
}

function outcome({ outcome, exit, output }: Expected): string[] {
  const text = output instanceof RegExp ? String(output) : output;
  return [OUTCOMES[outcome], String(exit), text === '' ? '' : code(text)];
}

/** A code span in a cell of a table, which a bar would end. */
function code(text: string): string {
  const fence = text.includes('`') ? '``' : '`';
  return `${fence}${text.replaceAll('|', '\\|')}${fence}`;
}
