import { Type } from 'typebox';
import { Int64, Nullable, Words } from '../../http/schema.js';
import { field, group, type Place } from '../field.js';
import { isVolumeMount } from '../mount-schema.js';
import { refuse } from '../refuse.js';

const ephemeral = field({
  schema: Type.Boolean({ default: false, description: 'Whether the sandbox is removed when its run ends.' }),
});

const idleTimeout = field({
  schema: Nullable(Int64({ description: 'The seconds of idleness after which it is stopped. Null: never.' })),
  default: null,
  check: refuseZero('idle_timeout_secs'),
  requires: (value) => [
    value !== null && { capability: 'idle_timeout', what: 'notice that a sandbox is idle' },
  ],
  run: (value) => ({ idleTimeoutSecs: value }),
});

const maxDuration = field({
  schema: Nullable(Int64({ description: 'The longest run in seconds. Null: no limit.' })),
  default: null,
  check: refuseZero('max_duration_secs'),
  run: (value) => ({ maxDurationSecs: value }),
});

const endsWithCommand = field({
  schema: Type.Boolean({
    description:
      'An extension for batch work. The run ends when `runtime.cmd` ends, and its exit code is the outcome: 0 is `stopped`, any other `failed`. Default: false, the sandbox stays up.',
  }),
  default: false,
  check(value, { field: at, whole }) {
    if (value && !whole.runtime?.cmd?.length)
      refuse(at, 'ends_with_command needs a command: give one in runtime.cmd');
  },
  show: (value) => value || undefined,
  run: (value) => ({ endsWithCommand: value }),
});

const wakeOnRequest = field({
  schema: Type.Boolean({
    description:
      'An extension: a request to a preview of the sandbox starts it when it does not run. Default: false.',
  }),
  default: false,
  check(value, { field: at, whole }) {
    if (value && whole.lifecycle?.ephemeral)
      refuse(at, 'an ephemeral sandbox is removed when its run ends: leave out ephemeral or wake_on_request');
  },
  show: (value) => value || undefined,
  run: (value) => (value ? { wakeOnRequest: value } : {}),
});

const onIdle = field({
  schema: Words(['stop', 'pause'], {
    title: 'SandboxOnIdle',
    description:
      'An extension: what `idle_timeout_secs` does. `pause` saves the memory, and the next session or request to a preview continues it. Default: `stop`.',
  }),
  default: 'stop',
  check(value, { field: at, whole }) {
    if (value !== 'pause') return;
    if (whole.lifecycle?.ephemeral)
      refuse(at, 'an ephemeral sandbox is removed when its run ends: leave out ephemeral, or stop it');
    if (whole.lifecycle?.idle_timeout_secs == null)
      refuse(at, 'a sandbox is idle after lifecycle.idle_timeout_secs: give it too');
  },
  requires(value, { whole }) {
    if (value !== 'pause') return [];
    return [
      { capability: 'pause', what: 'save the memory of a sandbox' },
      (whole.mounts ?? []).some(isVolumeMount) && {
        capability: 'pause_with_volumes',
        what: 'save the memory of a sandbox that mounts volumes',
      },
    ];
  },
  show: (value) => (value === 'pause' ? value : undefined),
  run: (value) => (value === 'pause' ? { pausesWhenIdle: true } : {}),
});

function refuseZero(key: string) {
  return (value: number | null, { field: at }: Place) => {
    if (value === 0) refuse(at, `${key} is at least 1 second; null is no limit`);
  };
}

export const lifecycle = group({
  request: { title: 'SandboxPolicy', description: 'The rules by which the service ends a sandbox.' },
  restricts: true,
  fields: {
    ephemeral,
    idle_timeout_secs: idleTimeout,
    max_duration_secs: maxDuration,
    ends_with_command: endsWithCommand,
    wake_on_request: wakeOnRequest,
    on_idle: onIdle,
  },
});
