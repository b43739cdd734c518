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
