import { ExplainedError } from '../lib/explained-error.js';
import type { RuntimeChoice } from './runtime.js';

/** The part of an installation that decides which runtime it may be served with. */
export interface Installation {
  /** The runtime it was served with last. Null: it was never served. */
  runtime: string | null;
  /** How many sandboxes each runtime still holds. */
  sandboxes: ReadonlyMap<string, number>;
}

export type Plan =
  /** `because`: why the simulated runtime is served although the operator did not name it. */
  | { use: 'simulated'; because?: string }
  /** `missing`: what happens when no engine answers. */
  | { use: 'docker'; missing: 'refuse' | 'wait' | 'simulate' };

/**
 * Decides which runtime an installation is served with. Throws ExplainedError when the choice would leave the sandboxes of
 * another runtime behind and the operator has not accepted that with `change`.
 *
 * An installation that has used Docker waits for its engine: a simulated runtime in its place would meter runs that never ran.
 */
export function planRuntime(
  { choice, change }: { choice: RuntimeChoice; change: boolean },
  { runtime, sandboxes }: Installation,
): Plan {
  if (choice === 'auto') {
    if (change) {
      throw new ExplainedError(
        '--change-runtime does not go with --runtime auto: name the runtime to change to, with --runtime docker or --runtime simulated',
      );
    }
    if (runtime === 'docker') return { use: 'docker', missing: 'wait' };
    const simulated = sandboxes.get('simulated') ?? 0;
    if (runtime !== 'simulated' || simulated === 0) return { use: 'docker', missing: 'simulate' };
    return {
      use: 'simulated',
      because: `this installation has ${counted(simulated, 'simulated')}: delete them, or change once with --runtime docker --change-runtime`,
    };
  }
  const other = choice === 'docker' ? 'simulated' : 'docker';
  const left = sandboxes.get(other) ?? 0;
  if (left > 0 && !change) {
    throw new ExplainedError(
      `this installation has ${counted(left, other)}, which the ${choice} runtime cannot run: use --runtime ${other}, delete them first, or leave them as they are with --change-runtime`,
    );
  }
  if (choice === 'simulated') return { use: 'simulated' };
  return { use: 'docker', missing: runtime === 'docker' ? 'wait' : 'refuse' };
}

function counted(count: number, runtime: string): string {
  return `${count} ${runtime} ${count === 1 ? 'sandbox' : 'sandboxes'}`;
}
