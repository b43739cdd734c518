export interface Finding {
  check: string;
  /** `missing`: the service works, with fewer features or at a risk. */
  state: 'ok' | 'missing' | 'broken';
  found: string;
  /** A command, or the steps where no command does it. Every finding that is not `ok` has a remedy. */
  remedy?: string;
}

const SIGNS = { ok: '✓', missing: '–', broken: '✗' };
const INDENT = ' '.repeat(15);

export function findingsText(findings: readonly Finding[]): string {
  return findings
    .flatMap(({ check, state, found, remedy }) => [
      `${SIGNS[state]} ${check.padEnd(12)} ${found}`,
      ...(remedy === undefined ? [] : [`${INDENT}→ ${remedy}`]),
    ])
    .join('\n');
}
