/** Prints the folders of `src` by theme and each import that breaks their order, and fails when there is one. */
import { drawThemes, layerFaults } from './layers.js';

for (const line of drawThemes()) console.log(line);
const faults = layerFaults();
for (const fault of faults) console.error(fault);
if (faults.length > 0) {
  console.error('Move the code, or pass the dependency as an argument. scripts/layers.ts has the order.');
  process.exitCode = 1;
}
