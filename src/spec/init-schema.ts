import { Type, type Static } from 'typebox';
import { Named } from '../http/schema.js';
import { MOST } from './size-limits.js';

export const HandoffInit = Named(
  'HandoffInit',
  {
    cmd: Type.String({ description: 'The program: an absolute path in the guest, or `auto`.' }),
    args: Type.Optional(
      Type.Array(Type.String(), { maxItems: MOST.words, description: 'The arguments of the program.' }),
    ),
    env: Type.Optional(
      Type.Array(Type.Array(Type.String(), { minItems: 2, maxItems: 2 }), {
        maxItems: MOST.env,
        description: 'The environment of the program, as pairs of key and value.',
      }),
    ),
  },
  'A program of the guest that becomes its process 1.',
);
export type HandoffInit = Static<typeof HandoffInit>;
