import { Buffer } from 'node:buffer';
import { ApiError } from '../../http/errors.js';
import type { CommandSpec } from '../../guest/guest.js';
import { MOST } from '../../spec/size-limits.js';
import type { ExecRequest } from './schema.js';

type Fields = Pick<ExecRequest, 'args' | 'env' | 'cwd' | 'user'> & { cmd: string };

/** `credit`: the bytes of output that may arrive before the first grant. */
export function commandOf({ cmd, args = [], env = [], cwd, user }: Fields, credit: number): CommandSpec {
  const bad = env.findIndex(({ key }) => key === '' || key.includes('='));
  if (bad !== -1) {
    throw badField(`env[${bad}].key`, 'the name of an environment variable must not be empty or contain "="');
  }
  if (env.filter(({ secret }) => secret === true).length > MOST.secretEnv)
    throw badField('env', `a command has at most ${MOST.secretEnv} secret variables`);
  return {
    args: [cmd, ...args],
    env: env.map(({ key, value }) => `${key}=${value}`),
    cwd: cwd ?? null,
    user: user ?? null,
    terminal: null,
    rlimits: [],
    credit,
  };
}

export function inputOf({ stdin, stdin_base64: base64 }: ExecRequest): Buffer {
  if (base64 === undefined) return Buffer.from(stdin ?? '');
  if (stdin !== undefined) throw badField('stdin_base64', 'stdin and stdin_base64 exclude each other');
  const bytes = Buffer.from(base64, 'base64');
  if (bytes.toString('base64') !== base64) throw badField('stdin_base64', 'stdin_base64 must be base64');
  return bytes;
}

export function badField(field: string, message: string): ApiError {
  return new ApiError('invalid_request', message, { field });
}
