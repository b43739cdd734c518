import type { Option } from '../options/option.js';
import { OPTIONS, type OptionName } from './options.js';

const HIDDEN = '(hidden)';
/**
 * Scheme, user, password, hosts with ports and database, parameters. A URL with an unescaped password never matches.
 */
const DATABASE_URL =
  /^(postgres(?:ql)?:\/\/)(?:([^:@/?#\s]*)(:[^@/?#\s]*)?@)?((?:\[[\da-f:.]*\]|[^:@/?#\s[\]]*)(?::\d+)?(?:,(?:\[[\da-f:.]*\]|[^:@/?#\s[\],]+)(?::\d+)?)*(?:\/[^:@/?#\s]*)?)(\?[^@#\s]*)?$/i;

export function printable(name: OptionName, value: unknown): string {
  const { secret }: Option = OPTIONS[name];
  if (!secret) return String(value);
  const [, scheme, user, password, host, parameters] =
    (name === 'databaseUrl' && DATABASE_URL.exec(String(value))) || [];
  if (scheme === undefined) return HIDDEN;
  const account = user === undefined ? '' : `${user}${password === undefined ? '' : `:${HIDDEN}`}@`;
  return `${scheme}${account}${host}${parameters === undefined ? '' : `?${HIDDEN}`}`;
}
