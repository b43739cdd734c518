import type { Finding } from '../engine/finding.js';

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
