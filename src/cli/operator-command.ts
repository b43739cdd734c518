import { Command, Help, Option } from 'commander';
import type { LoadedConfig } from '../config/load.js';
import type { OptionName } from '../config/options.js';

/** The help shows shared options below a command's own, under this heading. */
const COMMON = 'Common options:';

export function common(option: Option): Option {
  return option.helpGroup(COMMON);
}

class OperatorHelp extends Help {
  /** The order of the visible options decides the order of the groups: required, own, common. */
  override visibleOptions(command: Command): Option[] {
    const rank = ({ mandatory, helpGroupHeading }: Option) =>
      helpGroupHeading === COMMON ? 2 : mandatory ? 0 : 1;
    return super.visibleOptions(command).toSorted((a, b) => rank(a) - rank(b));
  }

  override groupItems<T extends Command | Option>(
    _unsorted: T[],
    visible: T[],
    groupOf: (item: T) => string,
  ): Map<string, T[]> {
    return super.groupItems(visible, visible, groupOf);
  }

  override optionDescription(option: Option): string {
    const text = super.optionDescription(option);
    return option.mandatory ? `required: ${text}` : text;
  }
}

const MISSING = new Set(['commander.missingMandatoryOptionValue', 'commander.missingArgument']);

/** A command whose help begins with its own options, and whose error names every missing argument. */
export class OperatorCommand extends Command {
  loaded: LoadedConfig<OptionName> | undefined;

  constructor(name: string) {
    super(name);
    this.addHelpOption(common(new Option('-h, --help', 'display help for command')));
  }

  override createHelp(): Help {
    return Object.assign(new OperatorHelp(), this.configureHelp());
  }

  override error(message: string, options?: Parameters<Command['error']>[1]): never {
    const missing = MISSING.has(options?.code ?? '') ? this.missing() : [];
    if (missing.length < 2) return super.error(message, options);
    return super.error(
      `error: ${missing.slice(0, -1).join(', ')} and ${missing.at(-1)} are required`,
      options,
    );
  }

  private missing(): string[] {
    const args = this.registeredArguments.filter(
      ({ required }, index) => required && this.args[index] === undefined,
    );
    const options = this.options.filter(
      (option) => option.mandatory && this.getOptionValue(option.attributeName()) === undefined,
    );
    return [...args.map((argument) => `<${argument.name()}>`), ...options.map(({ flags }) => `"${flags}"`)];
  }
}
