import { StartRefusedError, type Run } from './runtime.js';

/** The variables of a run, with the values of the secret ones. */
export function environmentOf({
  spec,
  secrets,
}: Pick<Run, 'spec' | 'secrets'>): { key: string; value: string }[] {
  const { env: values = {} } = secrets;
  return spec.env.map(({ key, value, secret = false }) => {
    if (!secret) return { key, value };
    if (!Object.hasOwn(values, key)) {
      const message = `the value of the secret variable ${key} was deleted with its key: create the sandbox again`;
      throw new StartRefusedError(message);
    }
    return { key, value: values[key]! };
  });
}
