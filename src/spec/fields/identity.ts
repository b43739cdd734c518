import { Type } from 'typebox';
import { Nullable } from '../../http/schema.js';
import { field, requiredField } from '../field.js';
import { isSlug, NAME_FORM, NAME_RULE, SANDBOX_NAME, SLUG_FORM, SLUG_RULE } from '../names.js';
import { refuse } from '../refuse.js';

export const name = requiredField({
  schema: Type.String({
    ...NAME_FORM,
    description:
      'The name: 1 to 128 of A-Z a-z 0-9 . - _, beginning with a letter or digit, unique in the organization.',
  }),
  answer: null,
  limitsItself: true,
  check(value) {
    if (!SANDBOX_NAME.test(value)) refuse('name', NAME_RULE);
  },
});

export const slug = field({
  schema: Nullable(
    Type.String({
      ...SLUG_FORM,
      description:
        'The slug: 3 to 63 of a-z 0-9 and single hyphens, unique in the installation. The service makes one if it is left out.',
    }),
  ),
  answer: null,
  default: null,
  limitsItself: true,
  check(value) {
    if (value !== null && !isSlug(value)) refuse('slug', SLUG_RULE);
  },
});
