import { Type, type Static } from 'typebox';
import { Int64, Named, Nullable, Words } from '../../http/schema.js';
import { envRequest } from '../../spec/env-schema.js';

const KIB = 1024;
const MIB = 1024 * KIB;

/** The default, and the most that an idempotency key stores. */
export const STORED_OUTPUT_BYTES = 256 * KIB;
export const MAX_OUTPUT_BYTES = 8 * MIB;
export const MAX_TIMEOUT_SECS = 3_600;
export const DEFAULT_TIMEOUT_SECS = 60;

/** A larger input is uploaded as a file. */
export const EXEC_BODY_LIMIT = MIB;

/** The fields that say which program runs, and as whom. */
export const commandFields = {
  args: Type.Optional(
    Type.Array(Type.String(), {
      maxItems: 4_096,
      description: 'The arguments of the program. No shell reads them. Default: none.',
    }),
  ),
  env: Type.Optional(
    envRequest(
      'Environment variables: a map, or a list of entries. They are added to those of the sandbox, or replace them.',
    ),
  ),
  cwd: Type.Optional(
    Nullable(
      Type.String({
        description:
          'The working directory. Default: that of the sandbox; without that directory the program runs in `/`, and its standard error begins with a warning.',
      }),
    ),
  ),
  user: Type.Optional(
    Nullable(
      Type.String({
        description: 'A name, a uid, `name:group` or `uid:gid`. Default: the user of the sandbox.',
      }),
    ),
  ),
};

export const ExecRequest = Type.Object(
  {
    cmd: Type.String({ minLength: 1, description: 'The program: a path, or a name that is in `PATH`.' }),
    ...commandFields,
    stdin: Type.Optional(
      Type.String({ description: 'The input of the program as text. Default: no input.' }),
    ),
    stdin_base64: Type.Optional(
      Type.String({ description: 'The input of the program as base64, in place of `stdin`.' }),
    ),
    timeout_secs: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_TIMEOUT_SECS,
        default: DEFAULT_TIMEOUT_SECS,
        description: `The longest that the program runs, in seconds, at most ${MAX_TIMEOUT_SECS}. After it the service kills its process group.`,
      }),
    ),
    max_output_bytes: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: MAX_OUTPUT_BYTES,
        default: STORED_OUTPUT_BYTES,
        description: `The bytes of output that the answer has, of both streams together, at most ${MAX_OUTPUT_BYTES}. With an \`Idempotency-Key\` they are at most ${STORED_OUTPUT_BYTES}. The program continues beyond them; its later output is dropped.`,
      }),
    ),
    mask_secrets: Type.Optional(
      Type.Boolean({
        default: false,
        description:
          'Whether `***` replaces the values of secret variables in the output. Values below 4 bytes stay.',
      }),
    ),
    output_encoding: Type.Optional(
      Words(['text', 'base64'], {
        description:
          'The form of the output. In `text` U+FFFD replaces bytes that are not UTF-8. Default: `text`.',
      }),
    ),
  },
  { title: 'ExecRequest', description: 'A command to run.', additionalProperties: false },
);
export type ExecRequest = Static<typeof ExecRequest>;

export const ExecResult = Named(
  'ExecResult',
  {
    exit_code: Type.Integer({
      description: 'The exit code. A signal that ended the program gives 128 and its number.',
    }),
    stdout: Type.String({ description: 'The standard output, in the form of `output_encoding`.' }),
    stderr: Type.String({ description: 'The standard error, in the form of `output_encoding`.' }),
    truncated: Type.Boolean({ description: 'Whether output beyond `max_output_bytes` was dropped.' }),
    timed_out: Type.Boolean({
      description:
        'Whether the service killed the program after `timeout_secs`. A sandbox that does not confirm the kill delays the answer by 3 seconds at most; its program may run on.',
    }),
    oom_killed: Type.Optional(
      Nullable(
        Type.Boolean({
          description:
            'Whether the program was killed because the sandbox had no memory left. Null: the control group does not say.',
        }),
      ),
    ),
    duration_ms: Int64({ description: 'The time from the start to the end, in milliseconds.' }),
  },
  'The end of a command, and its output.',
);
export type ExecResult = Static<typeof ExecResult>;
