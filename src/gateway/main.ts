/**
 * The gateway as a program of its own. A child of the service, with its listeners as descriptors from 3 on. It has no
 * options: the service sends everything.
 */
import { Gateway, type Descriptors } from './gateway.js';
import { LISTENERS } from './protocol.js';

const FIRST_DESCRIPTOR = 3;
/** The last messages get so long to reach a service that still reads. */
const END_MS = 500;

const MOST_FAULTS = 100;

let hasStarted = false;
const descriptors = Object.fromEntries(
  LISTENERS.map((name, position) => [name, FIRST_DESCRIPTOR + position]),
) as Descriptors;

const gateway = new Gateway(process.stdin, process.stdout, (reason) => {
  if (reason !== undefined) process.stderr.write(`gateway: the service sent a wrong message: ${reason}\n`);
  setTimeout(() => process.exit(), END_MS).unref();
  process.stdout.end(() => process.exit(reason === undefined ? 0 : 1));
});
// Node throws where a peer makes it do what it cannot. The known places end their exchange; another one must not end
// those of all sandboxes. A fault that repeats itself ends the program, which the service starts again.
let faults = 0;
process.on('uncaughtException', (error) => {
  process.stderr.write(`gateway: ${error.stack ?? error.message}\n`);
  faults += 1;
  if (!hasStarted || faults > MOST_FAULTS) process.exit(1);
});

// The program is one file of a format without await at its top.
void gateway.serve(descriptors).then(() => (hasStarted = true));
