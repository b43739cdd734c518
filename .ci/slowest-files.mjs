// Prints the files of a JSON report of Vitest that took longest, so that growth is seen.
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';

const SHOWN = 25;

const { testResults } = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const files = testResults.map(({ name, startTime, endTime }) => ({
  name: relative('', name),
  seconds: (endTime - startTime) / 1_000,
}));
const whole = files.reduce((sum, { seconds }) => sum + seconds, 0);
console.log(`the slowest of ${files.length} files, which took ${Math.round(whole)} s one after the other:`);
for (const { name, seconds } of files.toSorted((left, right) => right.seconds - left.seconds).slice(0, SHOWN))
  console.log(`${seconds.toFixed(0).padStart(5)} s  ${name}`);
