import { Option, type Command } from 'commander';
import { loadConfig, type Flags } from '../config/load.js';
import { defaultText, flagOf, variableOf } from '../config/names.js';
import type { Option as OptionEntry } from '../options/option.js';
import { OPTIONS, type OptionName } from '../config/options.js';
import { unknownVariables } from '../config/unknown-variables.js';
import { common, OperatorCommand } from './operator-command.js';

class ConfigOption extends Option {
  constructor(
    readonly optionName: OptionName,
    /** The effect of a missing value, for a command that ignores the default. */
    readonly unset: string | undefined,
  ) {
    const { type, description }: OptionEntry = OPTIONS[optionName];
    const facts = [
      ...(type.isChoice ? [type.form] : []),
      `default: ${unset ?? defaultText(optionName)}`,
      `env: ${variableOf(optionName)}`,
    ];
    super(flagsOf(optionName), `${description} (${facts.join('; ')})`);
  }
}

function flagsOf(name: OptionName): string {
  const { argument } = OPTIONS[name].type;
  return argument === undefined ? flagOf(name) : `${flagOf(name)} ${argument}`;
}

/** `unset`: the effect of a missing value, for a command that ignores the default. */
export function withConfig(
  command: Command,
  names: readonly OptionName[],
  { isCommon = false, unset }: { isCommon?: boolean; unset?: string } = {},
): Command {
  for (const name of names) {
    const option = new ConfigOption(name, unset);
    command.addOption(isCommon ? common(option) : option);
    if (OPTIONS[name].type.argument === undefined) {
      command.addOption(new Option(flagOf(name).replace('--', '--no-')).hideHelp());
    }
  }
  return command;
}

/** Gives the options of a command their values. Warns on standard error of variables that are no options. */
export function applyConfig(command: Command, env: NodeJS.ProcessEnv): void {
  const options = command.options.filter((option) => option instanceof ConfigOption);
  if (options.length === 0) return;
  for (const warning of unknownVariables(env)) process.stderr.write(`sandkeep: ${warning}\n`);
  const names = options.map(({ optionName }) => optionName);
  const loaded = loadConfig(names, flagsGiven(command, names), env);
  const { values, origins } = loaded;
  if (command instanceof OperatorCommand) command.loaded = loaded;
  for (const { optionName, unset } of options) {
    const isUnset = unset !== undefined && origins[optionName].from === 'default';
    command.setOptionValueWithSource(
      optionName,
      isUnset ? undefined : values[optionName],
      origins[optionName].from,
    );
  }
}

function flagsGiven(command: Command, names: readonly OptionName[]): Flags {
  const given = names.filter((name) => command.getOptionValueSource(name) === 'cli');
  return Object.fromEntries(given.map((name) => [name, String(command.getOptionValue(name))]));
}
