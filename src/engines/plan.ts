import type { EngineDefinition } from '../engine/definition.js';
import { ExplainedError } from '../lib/explained-error.js';
import { engineNamed, ENGINES } from './register.js';

export interface Installation {
  runtime: string | null;
  sandboxes: ReadonlyMap<string, number>;
}

export interface Plan {
  engine: EngineDefinition;
  /** The reaction when it does not answer. */
  missing: 'refuse' | 'wait' | 'fall_back';
  /** The reason for the fallback, where the operator did not name it. */
  because?: string;
}

/**
 * Throws ExplainedError when the choice would abandon sandboxes and `change` is false. An installation that has used an
 * engine waits for it: the fallback would meter runs that never ran.
 */
export function planRuntime(
  { choice, change }: { choice: string; change: boolean },
  installation: Installation,
  engines = ENGINES,
): Plan {
  if (choice === 'auto') return planAutomatically(change, installation, engines);
  const { runtime, sandboxes } = installation;
  const [other, left] = [...sandboxes].find(([name, count]) => name !== choice && count > 0) ?? ['', 0];
  if (left > 0 && !change) {
    throw new ExplainedError(
      `this installation has ${counted(left, other)}, which the ${choice} runtime cannot run: use --runtime ${other}, delete them first, or leave them as they are with --change-runtime`,
    );
  }
  return { engine: knownEngine(choice, engines), missing: runtime === choice ? 'wait' : 'refuse' };
}

function planAutomatically(
  change: boolean,
  { runtime, sandboxes }: Installation,
  engines: readonly EngineDefinition[],
): Plan {
  if (change) {
    const flags = engines.map(({ name }) => `--runtime ${name}`);
    throw new ExplainedError(
      `--change-runtime does not go with --runtime auto: name the runtime to change to, with ${flags.slice(0, -1).join(', ')} or ${flags.at(-1)}`,
    );
  }
  const preferred = automaticEngine('preferred', engines);
  const fallback = automaticEngine('fallback', engines);
  if (runtime !== null && runtime !== fallback.name)
    return { engine: knownEngine(runtime, engines), missing: 'wait' };
  const kept = sandboxes.get(fallback.name) ?? 0;
  if (runtime === null || kept === 0) return { engine: preferred, missing: 'fall_back' };
  return {
    engine: fallback,
    missing: 'wait',
    because: `this installation has ${counted(kept, fallback.name)}: delete them, or change once with --runtime ${preferred.name} --change-runtime`,
  };
}

export function automaticEngine(part: 'preferred' | 'fallback', engines = ENGINES): EngineDefinition {
  return engines.find(({ automatic }) => automatic === part)!;
}

/** The name may be that of another release. */
function knownEngine(name: string, engines: readonly EngineDefinition[]): EngineDefinition {
  const found = engineNamed(name, engines);
  if (found) return found;
  throw new ExplainedError(
    `this release has no runtime ${name}: use the release that served it, or name one of ${engines.map((engine) => engine.name).join(', ')} with --runtime and --change-runtime`,
  );
}

function counted(count: number, runtime: string): string {
  return `${count} ${runtime} ${count === 1 ? 'sandbox' : 'sandboxes'}`;
}
