import { Type } from 'typebox';
import { Field, Int64, NoEffect, Nullable, StringMap, Words } from '../../http/schema.js';
import { field, group } from '../field.js';
import { HOSTNAME_FORM, HOSTNAME_RULE, isHostname } from '../names.js';
import { UNKNOWN_FIELDS } from '../restrictions.js';
import { refuse } from '../refuse.js';
import { MOST } from '../size-limits.js';

/** Answers show whatever is stored, so they have no bound. */
function wordList(description: string) {
  return {
    schema: Nullable(Type.Array(Type.String(), { maxItems: MOST.words, description })),
    answer: Type.Optional(Nullable(Type.Array(Type.String(), { description }))),
  };
}

const cmd = field({
  ...wordList('The command to launch once at each start. Its output is the log. Null: none is launched.'),
  default: null,
  run: (value) => ({ cmd: value }),
});

const entrypoint = field({
  ...wordList('The words before `cmd`. Null: the entrypoint of the image.'),
  default: null,
  requires: (value, { whole }) => [
    value === null &&
      (whole.runtime?.cmd ?? []).length > 0 && {
        capability: 'image_entrypoint',
        what: 'read the entrypoint of the image',
        remedy: 'give it here, or [] for none',
      },
  ],
  run: (value) => ({ entrypoint: value }),
});

/** Numbers, and the name that has the number 0 everywhere. */
const KNOWN_USER = /^(?:\d{1,10}|root)(?::(?:\d{1,10}|root))?$/;

const user = field({
  schema: Nullable(
    Type.String({ description: 'The user of the guest, by name or id. Null: the user of the image.' }),
  ),
  default: null,
  requires: (value) => [
    value !== null &&
      !KNOWN_USER.test(value) && {
        capability: 'user_names',
        what: 'look the name of a user up in the image',
        remedy: `give numbers, such as 1000:1000; "id ${value.split(':')[0]}" in a sandbox of the image shows them`,
      },
  ],
  run: (value) => ({ user: value }),
});

const workdir = field({
  schema: Nullable(
    Type.String({ description: 'The working directory in the guest. Null: the one of the image.' }),
  ),
  default: null,
  check(value, { field: at }) {
    if (value !== null && !value.startsWith('/'))
      refuse(at, 'the working directory must be an absolute path');
  },
  run: (value) => ({ workdir: value }),
});

const shell = field({
  schema: Nullable(Type.String({ description: 'The shell for scripts and interactive sessions.' })),
  default: null,
  run: (value) => ({ shell: value }),
});

const SCRIPTS = 'The scripts to place in the guest, by name.';
const scripts = field({
  schema: Type.Unsafe<Record<string, string>>({
    ...StringMap({ description: SCRIPTS }),
    maxProperties: MOST.scripts,
  }),
  answer: Type.Optional(StringMap({ description: SCRIPTS })),
  default: {},
  check(value, { field: at }) {
    for (const name of Object.keys(value)) {
      if (!/^[A-Za-z0-9._-]{1,128}$/.test(name) || name === '.' || name === '..')
        refuse(at, 'the name of a script has 1 to 128 of A-Z a-z 0-9 . - _');
    }
  },
  requires: (value) => [
    Object.keys(value).length > 0 && { capability: 'scripts', what: 'place scripts in the guest' },
  ],
  run: (value) => ({ scripts: value }),
});

const LogLevel = Words(['error', 'warn', 'info', 'debug', 'trace'], {
  title: 'SandboxLogLevel',
  description: 'The least severe level that the guest runtime logs.',
});

const logLevel = field({
  schema: NoEffect(Nullable(LogLevel), 'nothing of the service writes a log inside a sandbox'),
  answer: Type.Optional(Field(Nullable(LogLevel), 'The log level of the guest runtime.')),
  default: null,
});

const hostname = field({
  schema: Nullable(
    Type.String({
      ...HOSTNAME_FORM,
      description: 'The host name of the guest. Default: the id of the sandbox.',
    }),
  ),
  answer: Type.Optional(
    Nullable(Type.String({ description: 'The host name of the guest. Null: the id of the sandbox.' })),
  ),
  default: null,
  check(value, { field: at }) {
    if (value !== null && !isHostname(value)) refuse(at, HOSTNAME_RULE);
  },
  requires: (value) => [
    (value ?? '').includes('.') && {
      capability: 'hostname_domain',
      what: 'set a host name with a domain',
      remedy: 'give a name without dots',
    },
  ],
  run: (value) => ({ hostname: value }),
});

const metricsInterval = field({
  schema: Nullable(
    Int64({
      default: 1000,
      description: 'The least milliseconds between two samples of metrics. Null: there are no samples.',
    }),
  ),
});

const disableMetrics = field({
  schema: Type.Boolean({ default: false, description: 'Whether sampling is off, whatever the interval.' }),
});

export const runtime = group({
  request: {
    title: 'CloudSandboxRuntimeOptions',
    description: `The options of the processes in the guest. ${UNKNOWN_FIELDS}`,
  },
  answer: {
    title: 'SandboxRuntimeOptions',
    description: 'The options of the processes in the guest.',
  },
  fields: {
    cmd,
    entrypoint,
    user,
    workdir,
    shell,
    scripts,
    log_level: logLevel,
    hostname,
    metrics_sample_interval_ms: metricsInterval,
    disable_metrics_sample: disableMetrics,
  },
});
