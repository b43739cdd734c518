import { Type } from 'typebox';
import { Uuid, Words } from '../../http/schema.js';
import { CALLER, event, SYSTEM } from './catalogue-entry.js';

const text = Type.String();
const count = Type.Integer({ minimum: 0 });
const part = Words(['none', 'inherit']);
/** `sandbox_id`: the sandbox that is copied. */
const fork = { fork_id: Uuid, sandbox_id: Uuid, name: text, count };

export const FORK_EVENTS = {
  sandbox_fork_requested: event(
    'sandbox',
    CALLER,
    'Copies of a sandbox were requested. Each copy has a `sandbox_created` with `forked_from`.',
    {
      ...fork,
      start: Type.Boolean(),
      secrets: part,
      ports: part,
      volumes: Type.Optional(Words(['share', 'copy'])),
    },
  ),
  sandbox_forked: event(
    'sandbox',
    SYSTEM,
    'The disk of a sandbox was captured for its copies, which start from it. The usage of the captured disk begins.',
    { ...fork, size_bytes: count },
  ),
  sandbox_fork_failed: event(
    'sandbox',
    SYSTEM,
    'The disk of a sandbox could not be captured for its copies, or they were all deleted. The copies are removed.',
    { ...fork, reason: Type.String({ description: 'The reason, as a code.' }), message: text },
  ),
};
