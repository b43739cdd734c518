import { Field, Nullable, Words } from '../../http/schema.js';
import { field } from '../field.js';
import { checkEnvKey } from './env.js';
import { HandoffInit } from '../init-schema.js';
import { refuse } from '../refuse.js';

export const init = field({
  schema: Field(Nullable(HandoffInit), 'The program of the guest that becomes its process 1. Default: none.'),
  answer: null,
  default: null,
  check(value) {
    if (value === null) return;
    for (const [index, [key = '']] of (value.env ?? []).entries()) checkEnvKey(key, `init.env[${index}]`);
    if (value.cmd === 'auto' || value.cmd.startsWith('/')) return;
    refuse(
      'init.cmd',
      'init.cmd must be an absolute path in the guest, such as /sbin/init, or the word auto',
    );
  },
  requires: (value) => [
    value !== null && { capability: 'init', what: 'hand process 1 to a program of the guest' },
  ],
  run: (value) => ({ init: value }),
});

export const securityProfile = field({
  schema: Words(['default', 'restricted'], {
    title: 'SecurityProfile',
    description: 'The privileges of the guest. `restricted` has no capabilities. Default: `default`.',
  }),
  answer: null,
  default: 'default',
  restricts: true,
  run: (value) => ({ securityProfile: value }),
});
