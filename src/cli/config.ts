import { Command } from 'commander';
import type { LoadedConfig, Origin } from '../config/load.js';
import { defaultText, keyOf } from '../config/names.js';
import { OPTION_NAMES, type OptionName } from '../config/options.js';
import { printable } from '../config/printable.js';
import { print } from './command.js';
import { withConfig } from './config-options.js';
import { common, OperatorCommand } from './operator-command.js';
import { json, wide } from './options.js';
import { table } from './table.js';

interface OutputOptions {
  json?: true;
  wide?: true;
}

type LoadedCommand = { loaded: LoadedConfig<OptionName> };

export function configCommand(): Command {
  return new Command('config')
    .description('the configuration that "serve" starts with, from flags, environment and file')
    .addCommand(showCommand())
    .addCommand(checkCommand());
}

function showCommand(): Command {
  return configuredCommand('show')
    .description('show the value of each option and its source; secrets are hidden')
    .addOption(common(wide()))
    .action((options: OutputOptions, { loaded }: LoadedCommand) => {
      const shown = OPTION_NAMES.map((name) => ({
        option: keyOf(name),
        value: shownValue(loaded, name),
        ...loaded.origins[name],
      }));
      const rows = OPTION_NAMES.map((name) => [
        keyOf(name),
        valueText(loaded, name),
        sourceText(loaded.origins[name]),
      ]);
      print(options, shown, table(['OPTION', 'VALUE', 'SOURCE'], rows, options));
    });
}

function checkCommand(): Command {
  return configuredCommand('check')
    .description('check flags, environment and file; fails and names each fault')
    .action((options: OutputOptions, { loaded: { file } }: LoadedCommand) => {
      print(
        options,
        { valid: true, file: file ?? null },
        `the configuration is valid; file: ${file ?? 'none'}`,
      );
    });
}

function configuredCommand(name: string): Command {
  return withConfig(new OperatorCommand(name), OPTION_NAMES).addOption(common(json()));
}

function shownValue({ values }: LoadedConfig<OptionName>, name: OptionName): unknown {
  const value = values[name];
  if (value === undefined) return null;
  return typeof value === 'string' ? printable(name, value) : value;
}

function valueText({ values }: LoadedConfig<OptionName>, name: OptionName): string {
  const value = values[name];
  if (value === undefined) return `(${defaultText(name)})`;
  return Array.isArray(value) && value.length === 0 ? 'none' : printable(name, value);
}

function sourceText({ from, name }: Origin): string {
  return name === null ? from : `${from} ${name}`;
}
