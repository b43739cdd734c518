import { labelsForm } from '../../http/labels-form.js';
import { StringMap } from '../../http/schema.js';
import { checkLabels } from '../../lib/labels.js';
import { field } from '../field.js';
import { refuse } from '../refuse.js';

export const labels = field({
  schema: StringMap({ ...labelsForm(), description: 'The labels of the sandbox. Default: none.' }),
  answer: StringMap({ description: 'The labels of the sandbox.' }),
  default: {},
  check(value) {
    const bad = checkLabels(value);
    if (bad) refuse(`labels.${bad.key}`, bad.message);
  },
  run: (value) => ({ labels: value }),
});
