/** Prints each import that breaks the order of the folders, and fails when there is one. */
import { layerFaults } from './layers.js';

const faults = layerFaults();
for (const fault of faults) console.error(fault);
if (faults.length > 0) {
  console.error('Move the code, or pass the dependency as an argument. ARCHITECTURE.md shows the order.');
  process.exitCode = 1;
}
