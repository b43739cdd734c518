/**
 * The gateway as a program of its own. A child of the service, with its listeners as descriptors from 3 on. It has no
 * options: the service sends everything.
 */
import { Gateway, type Descriptors } from './gateway.js';
import { LISTENERS } from './protocol.js';

const FIRST_DESCRIPTOR = 3;
/** The last messages get so long to reach a service that still reads. */
const END_MS = 500;

const descriptors = Object.fromEntries(
  LISTENERS.map((name, position) => [name, FIRST_DESCRIPTOR + position]),
) as Descriptors;

const gateway = new Gateway(process.stdin, process.stdout, (reason) => {
  if (reason !== undefined) process.stderr.write(`gateway: the service sent a wrong message: ${reason}\n`);
  setTimeout(() => process.exit(), END_MS).unref();
  process.stdout.end(() => process.exit(reason === undefined ? 0 : 1));
});
// The program is one file of a format without await at its top.
void gateway.listen(descriptors);
