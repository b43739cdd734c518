import { commandTests } from './guest/commands.js';
import { connectionTests } from './guest/connections.js';
import { fileTests } from './guest/files.js';
import { streamTests } from './guest/streams.js';
import { leakTests } from './guest/leaks.js';
import type { GuestTarget } from './guest/target.js';
import { terminalTests } from './guest/terminals.js';

/** The contract of a Guest, for any runtime. */
export function guestConformance(open: () => Promise<GuestTarget>): void {
  commandTests(open);
  terminalTests(open);
  fileTests(open);
  connectionTests(open);
  streamTests(open);
  leakTests(open);
}
