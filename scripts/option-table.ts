import { defaultText, flagOf, variableOf } from '../src/config/names.js';
import type { Option } from '../src/options/option.js';
import { OPTION_NAMES, OPTIONS } from '../src/config/options.js';

const BEGIN = '<!-- made from src/config/options.ts by "npm run generate" -->';
const END = '<!-- end of the options -->';

/** Replaces the table of options in docs/configuration.md. */
export function withOptionTable(page: string): string {
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`docs/configuration.md lacks the marks ${BEGIN} and ${END}`);
  const rows = OPTION_NAMES.map((name) => {
    const { type, description, secret }: Option = OPTIONS[name];
    const meaning = secret ? `${description}; secret` : description;
    const cells = [`\`${flagOf(name)}\``, `\`${variableOf(name)}\``, type.form, defaultText(name), meaning];
    return `| ${cells.map(escaped).join(' | ')} |`;
  });
  const head = [
    '| flag | environment variable | value | default | meaning |',
    '| --- | --- | --- | --- | --- |',
  ];
  return `${before}${BEGIN}\n\n${[...head, ...rows].join('\n')}\n\n${END}${after}`;
}

function escaped(cell: string): string {
  return cell.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
