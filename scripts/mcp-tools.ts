/** The table of the tools in docs/mcp.md. */
import { TOOLS } from '../src/mcp/tools/all.js';

const BEGIN = '<!-- made from src/mcp/tools by "npm run generate" -->';
const END = '<!-- end of the tools -->';

export function withTools(page: string): string {
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`docs/mcp.md lacks the marks ${BEGIN} and ${END}`);
  const rows = TOOLS.map(({ name, title, scopes, annotations, input }) => {
    const { properties = {}, required = [] } = input as { properties?: object; required?: string[] };
    const fields = Object.keys(properties).map((key) => (required.includes(key) ? `**${key}**` : key));
    const effect = annotations.readOnlyHint ? 'reads' : annotations.destructiveHint ? 'destroys' : 'adds';
    const needs = scopes.map((scope) => `\`${scope}\``).join(', ');
    return `| \`${name}\` | ${title} | ${fields.join(', ')} | ${needs} | ${effect} |`;
  });
  const head = '| tool | does | input (required in bold) | scopes | hint |\n| --- | --- | --- | --- | --- |';
  return `${before}${BEGIN}\n\n${[head, ...rows].join('\n')}\n\n${END}${after}`;
}
