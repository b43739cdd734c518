import type { Logger } from 'pino';
import type { EngineDefinition, Surroundings } from '../engine/definition.js';
import { ReconnectingRuntime } from '../engine/reconnecting.js';
import type { Runtime } from '../engine/runtime.js';
import { ExplainedError } from '../lib/explained-error.js';
import { InDataDir, type Options, type ValuesOf } from '../options/option.js';
import { automaticEngine, type Plan } from './plan.js';
import { ENGINES } from './register.js';

/** The values of options by their names, of any engine and of the service. A missing one has its default. */
export type GivenOptions = object;

/**
 * `fallback`: why another engine replaces the preferred one. Throws ExplainedError when a required engine is not
 * usable.
 */
export async function openRuntime(
  { engine, missing, because }: Plan,
  given: GivenOptions,
  surroundings: Surroundings,
  log: Logger,
  engines = ENGINES,
): Promise<{ runtime: Runtime; fallback?: string | undefined }> {
  const options = valuesOf(engine, given);
  const connect = async () => engine.connect(options, surroundings);
  if (engine.isInProcess) return { runtime: await connect(), fallback: because };
  const explain = (error: unknown) => engine.explain(error, options);
  const reconnecting = (first: Runtime | { reason: string }) =>
    new ReconnectingRuntime(engine, first, connect, explain, log);
  try {
    return { runtime: reconnecting(await connect()) };
  } catch (cause) {
    const reason = explain(cause);
    if (missing === 'wait') return { runtime: reconnecting({ reason }) };
    if (cause instanceof ExplainedError) throw cause;
    if (missing === 'refuse') throw new ExplainedError(`${reason}${engine.remedy}`, { cause });
    const other = automaticEngine('fallback', engines);
    return { runtime: await other.connect(valuesOf(other, given), surroundings), fallback: reason };
  }
}

/** The values of the engine's own options. */
export function valuesOf({ options }: EngineDefinition, given: GivenOptions): ValuesOf<Options> {
  const values = new Map(Object.entries(given));
  return Object.fromEntries(
    Object.entries(options).map(([name, { default: value }]) => [
      name,
      values.get(name) ?? defaultOf(name, value),
    ]),
  );
}

function defaultOf(name: string, value: unknown): unknown {
  // The data directory is an option of the service.
  if (value instanceof InDataDir)
    throw new Error(`the option ${name} of an engine has a default in the data directory`);
  return value;
}
