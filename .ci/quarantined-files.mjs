// Prints the files of a JSON report of Vitest that failed, when the list names all of them. Else it prints nothing, and fails.
// test/quarantine.json: at most three entries {"file", "owner", "reason"}. Everything that fails outside of it fails the run.
import { existsSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';

const [report, list = 'test/quarantine.json'] = process.argv.slice(2);
const MAX_ENTRIES = 3;

const entries = JSON.parse(readFileSync(list, 'utf8'));
if (entries.length > MAX_ENTRIES)
  fail(
    `${list} has ${entries.length} entries, and at most ${MAX_ENTRIES} may wait: mend a file and remove it`,
  );
for (const { file, owner, reason } of entries) {
  if (!owner || !reason) fail(`${list}: the entry of ${file} has no owner or no reason: name both`);
  if (!existsSync(file)) fail(`${list}: there is no file ${file}: remove its entry`);
}

const { testResults } = JSON.parse(readFileSync(report, 'utf8'));
const failed = testResults.filter(({ status }) => status === 'failed').map(({ name }) => relative('', name));
const quarantined = new Set(entries.map(({ file }) => file));
const others = failed.filter((file) => !quarantined.has(file));
if (others.length > 0) fail(`failed, and not run again: ${others.join(' ')}`);
// An error outside of every file.
if (failed.length === 0) fail('the run failed, and no file did: see the log');
console.log(failed.join('\n'));

function fail(reason) {
  console.error(reason);
  process.exit(1);
}
