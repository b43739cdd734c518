import { Type } from 'typebox';
import { Named } from '../../http/schema.js';
import { lastOfEachKey, MASKED, withoutSecrets, envRequest } from '../env-schema.js';
import { field } from '../field.js';
import { refuse } from '../refuse.js';
import { MOST } from '../size-limits.js';

const EnvVar = Named(
  'EnvVar',
  {
    key: Type.String({ description: 'The name of the variable.' }),
    value: Type.String({ description: 'The value of the variable. It can be empty.' }),
    secret: Type.Optional(
      Type.Boolean({ description: 'An extension: true if the value is sealed, and shown as `***`.' }),
    ),
  },
  'An environment variable.',
);

const PORTABLE_NAME = /^[A-Za-z_.-][A-Za-z0-9_.-]*$/;

export const env = field({
  schema: envRequest(
    'The environment variables of the guest: a list of entries, or a map. Of two entries with one key the last applies.',
  ),
  answer: Type.Array(EnvVar, { description: 'The environment variables of the guest.' }),
  default: [],
  restricts: true,
  check(entries) {
    for (const [index, { key, secret }] of entries.entries()) {
      checkEnvKey(key, `env[${index}].key`);
      if (secret === true) checkSecretKey(key, `env[${index}].key`);
    }
    const secrets = entries.filter(({ secret }) => secret === true).length;
    if (secrets > MOST.secretEnv) refuse('env', `a sandbox has at most ${MOST.secretEnv} secret variables`);
  },
  requires: (entries) => [
    ...entries.map(
      ({ key }, index) =>
        !PORTABLE_NAME.test(key) && {
          capability: 'any_env_name' as const,
          field: `env[${index}].key`,
          what: 'set an environment variable with this name',
          remedy: 'use letters, digits, "_", "-" and ".", and no digit first',
        },
    ),
    ...entries.map(
      ({ secret = false }, index) =>
        secret && {
          capability: 'secret_env' as const,
          field: `env[${index}].secret`,
          what: 'keep a variable secret',
        },
    ),
  ],
  show: (entries) => withoutSecrets(lastOfEachKey(entries), MASKED),
  run: (entries) => ({ env: withoutSecrets(lastOfEachKey(entries), '') }),
  seal: (entries) => ({
    env: Object.fromEntries(
      lastOfEachKey(entries).flatMap(({ key, value, secret }) => (secret === true ? [[key, value]] : [])),
    ),
  }),
});

export function checkEnvKey(key: string, at: string): void {
  if (key === '' || key.includes('='))
    refuse(at, 'the name of an environment variable is not empty and has no "="');
  if (key.startsWith('MSB_')) refuse(at, 'environment variables that start with MSB_ are reserved');
}

const MAX_SECRET_KEY = 1_024;

/** The name is in the key of an index, whose entries have 2,700 bytes at most. */
export function checkSecretKey(key: string, at: string): void {
  if (Buffer.byteLength(key) > MAX_SECRET_KEY)
    refuse(at, `the name of a secret variable has at most ${MAX_SECRET_KEY} bytes`);
}
