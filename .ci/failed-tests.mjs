// Prints a line for each failed test in a JSON report of Vitest: its file, its name, and the beginning of its error.
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';

const { testResults } = JSON.parse(readFileSync(process.argv[2], 'utf8'));
for (const { name, status, assertionResults } of testResults) {
  if (status !== 'failed') continue;
  const failed = assertionResults.filter((test) => test.status === 'failed');
  const faults = failed.map(({ fullName, failureMessages }) => [fullName, failureMessages[0] ?? '']);
  // The report has no error of a file whose preparation fails.
  if (faults.length === 0) faults.push(['(outside its tests)', 'see the log']);
  for (const [test, error] of faults) {
    const text = error.split(/\n +at /)[0].slice(0, 1_000);
    console.log([relative('', name), test, text].map((part) => part.replaceAll(/\s+/g, ' ')).join('\t'));
  }
}
