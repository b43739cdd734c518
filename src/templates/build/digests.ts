import { createHash, type Hash } from 'node:crypto';
import type { Source } from '../dockerfile/stages.js';
import type { Step } from './plan.js';
import { inTurns, type Turn } from './turns.js';

/** Changes when the same step would leave another disk. */
const FORMAT = 2;

/** The digest of a disk that files are copied from. Null: the engine does not tell. */
type DigestOf = (source: Source) => string | null;

/**
 * The digest of everything up to each step: the disk below, and the steps with their inputs. Those from the first step
 * on whose source has none are missing. `labels`: of the key of the build. A key that is narrowed to labels may change
 * the sandbox of its build by a session. So builds of other keys use no disk of it.
 */
export async function digestsOf(
  base: string,
  labels: Readonly<Record<string, string>>,
  steps: readonly Step[],
  turn: Turn,
  digestOf: DigestOf = () => null,
): Promise<string[]> {
  const ofKey = Object.keys(labels)
    .toSorted()
    .map((name) => [name, labels[name]]);
  let previous = JSON.stringify([FORMAT, base, ofKey]);
  const digests: string[] = [];
  for (const step of steps) {
    const source = step.type === 'copy-from' ? digestOf(step.source) : undefined;
    if (source === null) break;
    const hash = createHash('sha256').update(previous);
    await addInput(hash, step, source, turn);
    previous = hash.digest('hex');
    digests.push(previous);
  }
  return digests;
}

async function addInput(hash: Hash, step: Step, source: string | undefined, turn: Turn): Promise<void> {
  const add = (value: unknown) => void hash.update(`\n${JSON.stringify(value)}`);
  if (step.type === 'run') await turn(() => add(['run', step.args, step.env, step.cwd, step.user]));
  else if (step.type === 'workdir') await turn(() => add(['workdir', step.path]));
  else if (step.type === 'copy-from') {
    const { paths, destination, target, owner, mode } = step;
    await turn(() => add(['copy-from', source, paths, destination, target, owner, mode]));
  } else {
    await turn(() => add(['copy', step.target, step.intoDirectory, step.owner, step.mode]));
    await inTurns(step.items, turn, ({ entry, to }) => add([to, entry.type, entry.mode, entry.content]));
  }
}
