/** The tables of roles and of their operations in docs/roles.md. */
import { narrowedScopes, ROLE_NAMES, ROLES } from '../src/access/roles.js';
import { covers, SCOPES, type Scope } from '../src/access/scopes.js';

const BEGIN = '<!-- made from src/access/roles.ts and openapi.json by "npm run generate" -->';
const END = '<!-- end of the roles -->';

/** The part of openapi.json that this page needs. */
interface Document {
  paths: Record<string, Record<string, { 'x-required-scope'?: string }>>;
}

export function withRoles(page: string, { paths }: Document): string {
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`docs/roles.md lacks the marks ${BEGIN} and ${END}`);
  const roles = ROLE_NAMES.map(
    (name) =>
      `| \`${name}\` | ${ROLES[name].summary} | ${code(ROLES[name].scopes)} | ${code(narrowedScopes(name))} |`,
  );
  const operations = Object.values(paths).flatMap((methods) =>
    Object.values(methods).map((operation) => operation['x-required-scope']),
  );
  const openings = SCOPES.map((scope) => {
    const opened = operations.filter((operation) => operation === scope).length;
    const able = ROLE_NAMES.filter((name) => covers(ROLES[name].scopes, scope));
    return `| \`${scope}\` | ${able.join(', ')} | ${opened} |`;
  });
  return `${before}${BEGIN}

| role | may | scopes | scopes with labels |
| --- | --- | --- | --- |
${roles.join('\n')}

## Operations

\`GET /v1/me/org\` and the [personal tokens](tokens.md) of a member are open to every role. Tools by \`POST /mcp\` need a key. [openapi.json](../openapi.json) names the scope of each
operation as \`x-required-scope\`.

| scope | roles | operations |
| --- | --- | --- |
${openings.join('\n')}

${END}${after}`;
}

function code(scopes: readonly Scope[]): string {
  return scopes.length === 0 ? '–' : scopes.map((scope) => `\`${scope}\``).join(', ');
}
