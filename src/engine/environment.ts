import { DEFAULT_PATH } from '../guest/programs.js';
import type { RunSpec } from '../spec/run-spec.js';
import { SCRIPTS_DIRECTORY } from './run-files.js';
import { StartRefusedError, type Run } from './runtime.js';

/**
 * The variables of a run, with the values of the secret ones. Those of the network have their placeholders, whatever
 * the request says of the variable: the guest must never get the value.
 */
export function environmentOf({
  spec,
  secrets,
}: Pick<Run, 'spec' | 'secrets'>): { key: string; value: string }[] {
  const { env: values = {} } = secrets;
  const placeholders = (spec.gated?.secrets ?? []).map(({ name: key, placeholder: value }) => ({
    key,
    value,
  }));
  const others = spec.env.filter(({ key }) => !placeholders.some((placeholder) => placeholder.key === key));
  const variables = others.map(({ key, value, secret = false }) => {
    if (!secret) return { key, value };
    if (!Object.hasOwn(values, key)) {
      const message = `the value of the secret variable ${key} was deleted with its key: create the sandbox again`;
      throw new StartRefusedError(message);
    }
    return { key, value: values[key]! };
  });
  return [...variables, ...placeholders];
}

/** As `NAME=value`: the variables that a sandbox of a pool lacks. `own`: those that it has. */
export function lateEnvironment(
  { env, scripts }: Pick<RunSpec, 'env' | 'scripts'>,
  own: readonly string[],
): string[] {
  const entries = env.map(({ key, value }) => `${key}=${value}`);
  if (Object.keys(scripts).length === 0 || env.some(({ key }) => key === 'PATH')) return entries;
  const path = own.find((entry) => entry.startsWith('PATH='))?.slice('PATH='.length) ?? DEFAULT_PATH;
  // A container that was made anew has it.
  if (path.split(':').includes(SCRIPTS_DIRECTORY)) return entries;
  return [...entries, `PATH=${path}:${SCRIPTS_DIRECTORY}`];
}
