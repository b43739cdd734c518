import { createHash, type Hash } from 'node:crypto';
import type { Step } from './plan.js';

/** Changes when the same step would leave another disk. */
const FORMAT = 1;

/**
 * The digest of everything up to each step: the disk below, and the steps with their inputs. `pause`: lets other work
 * pass between steps.
 */
export async function digestsOf(
  base: string,
  steps: readonly Step[],
  pause: () => Promise<void>,
): Promise<string[]> {
  let previous = JSON.stringify([FORMAT, base]);
  const digests: string[] = [];
  for (const step of steps) {
    const hash = createHash('sha256').update(previous);
    addInput(hash, step);
    previous = hash.digest('hex');
    digests.push(previous);
    await pause();
  }
  return digests;
}

function addInput(hash: Hash, step: Step): void {
  const add = (value: unknown) => hash.update(`\n${JSON.stringify(value)}`);
  if (step.type === 'run') add(['run', step.args, step.env, step.cwd, step.user]);
  else if (step.type === 'workdir') add(['workdir', step.path]);
  else {
    add(['copy', step.target, step.intoDirectory, step.owner, step.mode]);
    for (const { entry, to } of step.items) add([to, entry.type, entry.mode, entry.content]);
  }
}
