import { Type, type Static } from 'typebox';
import { labelsForm } from '../http/labels-form.js';
import { Named, Nullable, restricting, StringMap } from '../http/schema.js';
import { NAME_FORM, SLUG_FORM } from './names.js';
import { RESTRICTING_WORDS } from './restrictions.js';

export const UpdateSandboxRequest = Named(
  'UpdateSandboxRequest',
  {
    name: Type.Optional(
      Nullable(Type.String({ ...NAME_FORM, description: 'The new name, unique in the organization.' })),
    ),
    slug: Type.Optional(
      Nullable(Type.String({ ...SLUG_FORM, description: 'The new slug, unique in the installation.' })),
    ),
    labels: Type.Optional(
      Nullable(
        StringMap({
          ...labelsForm(),
          description: 'The new labels. They replace all labels, and usage counts under them from now on.',
        }),
      ),
    ),
  },
  'The changes to a sandbox. Fields that are left out stay.',
  restricting({ fields: [], words: RESTRICTING_WORDS }),
);
export type UpdateSandboxRequest = Static<typeof UpdateSandboxRequest>;
