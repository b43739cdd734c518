import { ExplainedError } from '../lib/explained-error.js';
import { explainValue, readConfigFile, type ConfigFile } from './file.js';
import { flagOf, variableOf } from './names.js';
import type { Option } from '../options/option.js';
import { defaultOf, OPTIONS, type Config, type OptionName } from './options.js';

/** The texts of the flags that the caller gave; a switch is `true` or `false`. */
export type Flags = Partial<Record<OptionName, string>>;

/** The source of a value, and its name there: the flag, the variable or the path of the file. */
export interface Origin {
  from: 'flag' | 'environment' | 'file' | 'default';
  name: string | null;
}

export interface LoadedConfig<K extends OptionName> {
  values: Pick<Config, K>;
  origins: Readonly<Record<K, Origin>>;
  file: string | undefined;
}

interface Found {
  value: unknown;
  origin: Origin;
}

/**
 * Gives each option its value: of the flag, else of the environment, else of the file, else the default. A command
 * loads only the options that it has, so that no other variable can fail it. Throws ExplainedError that names each
 * fault.
 */
export function loadConfig<K extends OptionName>(
  names: readonly K[],
  flags: Flags,
  env: NodeJS.ProcessEnv,
): LoadedConfig<K> {
  const find = (name: OptionName, file?: ConfigFile) =>
    fromText(name, flags[name], { from: 'flag', name: flagOf(name) }) ??
    fromText(name, env[variableOf(name)], { from: 'environment', name: variableOf(name) }) ??
    fromFile(name, file);

  const file = readConfigFile(
    find('config')?.value as string | undefined,
    (find('dataDir')?.value ?? OPTIONS.dataDir.default) as string,
  );
  const dataDir = (find('dataDir', file)?.value ?? OPTIONS.dataDir.default) as string;
  const faults: string[] = [];
  const found = names.map((name): [K, Found] => {
    try {
      const { value, origin } = find(name, file) ?? fromDefault(name, dataDir);
      return [name, { value: name === 'config' ? file?.path : value, origin }];
    } catch (error) {
      if (!(error instanceof ExplainedError)) throw error;
      faults.push(error.message);
      return [name, fromDefault(name, dataDir)];
    }
  });
  if (faults.length > 0) throw new ExplainedError(faults.join('\nsandkeep: '));
  return {
    values: Object.fromEntries(found.map(([name, { value }]) => [name, value])) as Pick<Config, K>,
    origins: Object.fromEntries(found.map(([name, { origin }]) => [name, origin])) as Record<K, Origin>,
    file: file?.path,
  };
}

/** Throws ExplainedError for a text that does not have the form of the option. */
function fromText(
  name: OptionName,
  text: string | undefined,
  origin: Origin & { name: string },
): Found | undefined {
  if (text === undefined) return undefined;
  const { type, secret }: Option = OPTIONS[name];
  const value = type.parse(text);
  if (value === undefined) throw new ExplainedError(explainValue(origin.name, text, type.form, secret));
  return { value, origin };
}

function fromFile(name: OptionName, file: ConfigFile | undefined): Found | undefined {
  if (!file?.values.has(name)) return undefined;
  return { value: file.values.get(name), origin: { from: 'file', name: file.path } };
}

function fromDefault(name: OptionName, dataDir: string): Found {
  return { value: defaultOf(name, dataDir), origin: { from: 'default', name: null } };
}
