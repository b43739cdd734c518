import { Type } from 'typebox';
import { Nullable, Uuid } from '../../http/schema.js';
import { CALLER, event, SYSTEM } from './catalogue-entry.js';

const text = Type.String();
const count = Type.Integer({ minimum: 0 });
const template = { template_id: Uuid, name: text, tag: text };

export const TEMPLATE_EVENTS = {
  template_build_requested: event('template', CALLER, 'The build of a template was requested.', {
    ...template,
    base: text,
    steps: count,
    context_bytes: Nullable(count),
  }),
  template_built: event(
    'template',
    SYSTEM,
    'A build has succeeded. The template has its name and tag now, and replaces the one that had them.',
    {
      ...template,
      snapshot_id: Uuid,
      steps: count,
      steps_cached: count,
      size_bytes: Nullable(count),
      replaced_template_id: Nullable(Uuid),
    },
  ),
  template_build_failed: event(
    'template',
    [...CALLER, ...SYSTEM],
    'A build has failed, or was cancelled. Its sandbox is deleted.',
    {
      ...template,
      reason: Type.String({ description: 'The reason, as a code.' }),
      message: text,
      line: Nullable(count),
    },
  ),
  template_deleted: event(
    'template',
    [...CALLER, ...SYSTEM],
    'A template was deleted, or lost with its worker. Its data is removed when no sandbox needs it.',
    template,
  ),
};
