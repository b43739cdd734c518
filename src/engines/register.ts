import type { EngineDefinition } from '../engine/definition.js';
import type { Options } from '../options/option.js';
import { docker } from './docker/engine.js';
import { kubernetes } from './kubernetes/engine.js';
import { microvm } from './microvm/engine.js';
import { simulated } from './simulated/engine.js';

/** Every engine. A new one is a folder beside these, and a word here. */
const REGISTERED = [docker, kubernetes, microvm, simulated] as const;

export const ENGINES: readonly EngineDefinition[] = REGISTERED;

/** The values of `--runtime`. */
export const RUNTIME_CHOICES: readonly string[] = ['auto', ...ENGINES.map(({ name }) => name)];

type Merged<T> = (T extends unknown ? (each: T) => void : never) extends (all: infer All) => void
  ? All
  : never;
type EngineOptions = Merged<(typeof REGISTERED)[number]['options']>;

/** The options of all engines. */
export const ENGINE_OPTIONS = Object.assign(
  {},
  ...ENGINES.map(({ options }): Options => options),
) as EngineOptions;

const namesIn = (lists: readonly (readonly string[] | undefined)[]) =>
  lists.flatMap((list) => list ?? []) as (keyof EngineOptions)[];

/** The names of the options that say where the engines are, for commands that connect without serving. */
export const ADDRESS_OPTIONS = namesIn(ENGINES.map(({ address }) => address));
/** Those of `sandkeep doctor`. */
export const EXAMINED_OPTIONS = [...ADDRESS_OPTIONS, ...namesIn(ENGINES.map(({ examined }) => examined))];
/** The engines in which an installation leaves objects, and the options of the command that removes them. */
export const LEAVING_ENGINES = ENGINES.filter((engine) => engine.findRemains !== undefined);
export const LEAVING_OPTIONS = namesIn(LEAVING_ENGINES.map(({ leaving }) => leaving));

/** The parts of the data directory that hold the records of engines. */
export const ENGINE_DIRECTORIES = ENGINES.flatMap(({ directory }) => directory ?? []);

export function engineNamed(name: string, engines = ENGINES): EngineDefinition | undefined {
  return engines.find((engine) => engine.name === name);
}
