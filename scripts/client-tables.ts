import { OUTCOMES, RUNTIMES, type Expected, type Row, type Session } from '../test/clients/row.js';
import { CLIENT_VERSION, SESSIONS } from '../test/clients/table.js';

/** The tables of docs/clients.md, from the table that the tests of the official clients run. */

const HEADINGS = ['command', 'runtime', 'outcome', 'exit code', 'output'];
const BEGIN = '<!-- made from test/clients/table.ts by "npm run generate" -->';
const END = '<!-- end of the tables -->';

/** Returns the page with new tables. Throws when the page has lost the marks around them. */
export function withClientTables(page: string): string {
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin === -1 || end < begin) throw new Error(`the page has no "${BEGIN}" before a "${END}"`);
  const head = page.slice(0, begin).replaceAll(/microsandbox@[\d.]+/g, `microsandbox@${CLIENT_VERSION}`);
  return `${head}${BEGIN}\n\n${SESSIONS.map(section).join('\n\n')}\n\n${page.slice(end)}`;
}

function section({ title, files = {}, rows }: Session): string {
  const blocks = Object.entries(files).map(
    ([name, text]) => `\`${name}\`:\n\n\`\`\`${name.endsWith('.yaml') ? 'yaml' : ''}\n${text}\`\`\``,
  );
  const lines = [HEADINGS, HEADINGS.map(() => '---'), ...rows.flatMap(cells)];
  const table = lines.map((line) => `| ${line.join(' | ')} |`).join('\n');
  return [`### ${title}`, ...blocks, table].join('\n\n');
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

function commandOf({ client, run, input, typed }: Row): string {
  if (client !== 'cli') return run;
  const pipe = input === undefined ? '' : `printf '${input.replaceAll('\n', String.raw`\n`)}' | `;
  const keys = typed === undefined ? '' : ` (${['in a terminal', ...typed].join(' ⏎ ')})`;
  return `${pipe}msb ${run}${keys}`;
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
