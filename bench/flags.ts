import { Option, type Command } from 'commander';
import { ExplainedError } from '../src/lib/explained-error.js';

export type RuntimeName = 'docker' | 'microvm';

export function runtimeOption(description: string): Option {
  return new Option('--runtime <name>', description).choices(['docker', 'microvm']).default('docker');
}

/** Refuses flags of the command line that would have no effect. `names`: as in the options of an action. */
export function refuseFlags(command: Command, names: readonly string[], where: string): void {
  const given = names.filter((name) => command.getOptionValueSource(name) === 'cli');
  if (given.length === 0) return;
  const flags = command.options.filter((option) => given.includes(option.attributeName()));
  const [has, it] = flags.length === 1 ? ['has', 'it'] : ['have', 'them'];
  const listed = flags.map(({ long }) => long).join(' and ');
  throw new ExplainedError(`${listed} ${has} no effect ${where}: leave ${it} out`);
}
