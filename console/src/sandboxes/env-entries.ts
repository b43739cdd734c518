import { formatPairs, parsePairs } from '../lib/labels.js';

export interface EnvEntry {
  key: string;
  value: string;
  /** The value is sealed, and no answer has it. */
  secret?: boolean;
}

/** The entries of `env`, which is a list or a map. A form shows nothing of another JSON value. */
export function entriesOf(env: unknown): EnvEntry[] {
  if (Array.isArray(env)) return env.filter((entry): entry is EnvEntry => typeof entry?.key === 'string');
  if (typeof env !== 'object' || env === null) return [];
  return Object.entries(env).map(([key, value]) => ({ key, value: String(value) }));
}

const isSecret = ({ secret }: EnvEntry) => secret === true;

export const secretsOf = (env: unknown) => entriesOf(env).filter(isSecret);
export const plainOf = (env: unknown) => entriesOf(env).filter((entry) => !isSecret(entry));

export function plainText(env: unknown): string {
  return formatPairs(plainOf(env).map(({ key, value }) => [key, value]));
}

/** Undefined: no entries are left. */
export function withPlainText(env: unknown, text: string): EnvEntry[] | undefined {
  return unlessEmpty([...parsePairs(text).map(([key, value]) => ({ key, value })), ...secretsOf(env)]);
}

/** Undefined: no entries are left. */
export function withSecrets(env: unknown, secrets: readonly EnvEntry[]): EnvEntry[] | undefined {
  return unlessEmpty([...plainOf(env), ...secrets]);
}

/** For lines that people copy into a shell, whose history would keep the values. */
export function withMaskedSecrets(env: unknown): unknown {
  if (!Array.isArray(env)) return env;
  return env.map((entry: EnvEntry) => (isSecret(entry) ? { ...entry, value: '***' } : entry));
}

function unlessEmpty(entries: EnvEntry[]): EnvEntry[] | undefined {
  return entries.length === 0 ? undefined : entries;
}
