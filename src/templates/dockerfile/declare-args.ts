import type { InstructionOf } from './instruction.js';
import { atLine, type Lookup, type WordExpander } from './words.js';

/** Adds the variables of an ARG to `args`. `globals`: those above FROM, which an ARG without a value takes over. */
export function declareArgs(
  { args: declared, line }: InstructionOf<'arg'>,
  expander: WordExpander,
  args: Map<string, string>,
  buildArgs: ReadonlyMap<string, string>,
  globals?: ReadonlyMap<string, string>,
  lookup: Lookup = (name) => args.get(name),
): void {
  for (const { name, value } of declared) {
    const initial =
      value === null ? globals?.get(name) : atLine({ line }, () => expander.expand(value, lookup));
    const given = buildArgs.get(name) ?? initial;
    if (given === undefined) continue;
    atLine({ line }, () => expander.count(name));
    if (given !== initial) atLine({ line }, () => expander.count(given));
    args.set(name, given);
  }
}
