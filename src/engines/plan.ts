import { ExplainedError } from '../lib/explained-error.js';
import type { RuntimeChoice } from '../engine/runtime.js';

export interface Installation {
  runtime: string | null;
  sandboxes: ReadonlyMap<string, number>;
}

export type Plan =
  /** `because`: set when the operator did not name the simulated runtime. */
  | { use: 'simulated'; because?: string }
  /** `missing`: the reaction when no engine answers. */
  | { use: 'docker'; missing: 'refuse' | 'wait' | 'simulate' }
  | { use: 'kubernetes'; missing: 'refuse' | 'wait' };

/**
 * Throws ExplainedError when the choice would abandon sandboxes and `change` is false. An installation that has used
 * Docker waits for its engine: a simulated runtime would meter runs that never ran.
 */
export function planRuntime(
  { choice, change }: { choice: RuntimeChoice; change: boolean },
  { runtime, sandboxes }: Installation,
): Plan {
  if (choice === 'auto') {
    if (change) {
      throw new ExplainedError(
        '--change-runtime does not go with --runtime auto: name the runtime to change to, with --runtime docker, --runtime kubernetes or --runtime simulated',
      );
    }
    if (runtime === 'docker' || runtime === 'kubernetes') return { use: runtime, missing: 'wait' };
    const simulated = sandboxes.get('simulated') ?? 0;
    if (runtime !== 'simulated' || simulated === 0) return { use: 'docker', missing: 'simulate' };
    return {
      use: 'simulated',
      because: `this installation has ${counted(simulated, 'simulated')}: delete them, or change once with --runtime docker --change-runtime`,
    };
  }
  const [other, left] = [...sandboxes].find(([name, count]) => name !== choice && count > 0) ?? ['', 0];
  if (left > 0 && !change) {
    throw new ExplainedError(
      `this installation has ${counted(left, other)}, which the ${choice} runtime cannot run: use --runtime ${other}, delete them first, or leave them as they are with --change-runtime`,
    );
  }
  if (choice === 'simulated') return { use: 'simulated' };
  return { use: choice, missing: runtime === choice ? 'wait' : 'refuse' };
}

function counted(count: number, runtime: string): string {
  return `${count} ${runtime} ${count === 1 ? 'sandbox' : 'sandboxes'}`;
}
