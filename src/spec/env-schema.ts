import type { FastifyRequest } from 'fastify';
import { Type, type Static } from 'typebox';
import { Named, StringMap } from '../http/schema.js';
import { MOST } from './size-limits.js';

const fields = {
  key: Type.String({ description: 'The name of the variable.', examples: ['LANG'] }),
  value: Type.String({ description: 'The value of the variable. It can be empty.', examples: ['C.UTF-8'] }),
};

const EnvVar = Named(
  'EnvVarRequest',
  {
    ...fields,
    secret: Type.Optional(
      Type.Boolean({
        default: false,
        description:
          'Whether the value is sealed. Commands of the sandbox get it; every answer shows `***` in its place.',
      }),
    ),
  },
  'An environment variable to set.',
);
export type EnvEntry = Static<typeof EnvVar>;

/** A list of entries, or a map. `acceptEnvMap` turns the map into the list before the schema sees it. */
export function envRequest(description: string) {
  return Type.Unsafe<EnvEntry[]>({
    anyOf: [
      Type.Array(EnvVar, { maxItems: MOST.env, description: 'The variables in their order.' }),
      {
        ...StringMap({ description: 'The variables by name.' }),
        maxProperties: MOST.env,
        examples: [{ LANG: 'C.UTF-8' }],
      },
    ],
    description,
  });
}

/** Turns a map of variables into the list. Another value stays, and the schema refuses it by its field. */
export async function acceptEnvMap({ body }: Pick<FastifyRequest, 'body'>): Promise<void> {
  if (typeof body !== 'object' || body === null || !('env' in body)) return;
  const { env } = body;
  if (typeof env !== 'object' || env === null || Array.isArray(env)) return;
  const entries = Object.entries(env);
  if (entries.length > MOST.env || entries.some(([, value]) => typeof value !== 'string')) return;
  body.env = entries.map(([key, value]) => ({ key, value: value as string }));
}

/** Stands for the value of a secret variable in every answer. */
export const MASKED = '***';

/** The last entry of a key wins, as in the environment of a process. */
export function lastOfEachKey(env: readonly EnvEntry[]): EnvEntry[] {
  return [...new Map(env.map((entry) => [entry.key, entry])).values()];
}

/** The entries without the values of secrets, which `masked` replaces. */
export function withoutSecrets(env: readonly EnvEntry[], masked: string): EnvEntry[] {
  return env.map(({ key, value, secret = false }) =>
    secret ? { key, value: masked, secret } : { key, value },
  );
}
