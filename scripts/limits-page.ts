import { flagOf } from '../src/config/names.js';
import { OPTIONS, type OptionName } from '../src/config/options.js';
import { answerText } from './limit-values.js';
import { LIMITS, OWNERS } from './limits.js';

/** docs/limits.md. */
export function limitsPage(): string {
  const sections = OWNERS.map((owner) =>
    [
      `## ${/^[aeiou]/.test(owner) ? 'An' : 'A'} ${owner}`,
      [
        '| limit | default | option | beyond it |',
        '| --- | --- | --- | --- |',
        ...LIMITS[owner].map(
          ({ limit, value, option, beyond }) =>
            `| ${limit} | ${value} | ${option === undefined ? '' : `\`${knownFlag(option)}\``} | ${answerText(beyond)} |`,
        ),
      ].join('\n'),
    ].join('\n\n'),
  );
  return [
    '<!-- made from scripts/limits.ts by "npm run generate" -->',
    '# Limits',
    'Every bound on what one caller can make the service spend. Each value is read from the code that enforces it. A limit without an option is fixed. Quotas of an organization, such as its number of sandboxes, are set by the operator: `sandkeep quota set`.',
    ...sections,
    '',
  ].join('\n\n');
}

function knownFlag(option: OptionName): string {
  if (!(option in OPTIONS)) throw new Error(`there is no option ${option}`);
  return flagOf(option);
}
