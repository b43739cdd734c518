import { Type } from 'typebox';
import { Nullable, Uuid } from '../../http/schema.js';
import { CALLER, closed, event, SYSTEM } from './catalogue-entry.js';

const text = Type.String();
const count = Type.Integer({ minimum: 0 });
const pool = { pool_id: Uuid, name: text };
const size = { size: count, most: Nullable(count) };
const state = closed({ ...size, image: text, vcpus: count, memory_mib: count });

export const POOL_EVENTS = {
  pool_created: event('pool', CALLER, 'A pool was created.', { ...pool, ...size, image: text }),
  pool_changed: event('pool', CALLER, 'The size, the limit or the sandboxes of a pool were changed.', {
    ...pool,
    before: state,
    after: state,
  }),
  pool_deleted: event(
    'pool',
    CALLER,
    'A pool was deleted, and with it the sandboxes that no create had taken.',
    pool,
  ),
  pool_sandbox_added: event(
    'sandbox',
    SYSTEM,
    'A sandbox was created for a pool, and its start was admitted. Its usage begins with the start.',
    { ...pool, sandbox_id: Uuid, sandbox_name: text, run_id: Uuid, image: text },
  ),
  pool_image_moved: event(
    'pool',
    SYSTEM,
    'The tag of the image of a pool leads to another image. The pool replaces its sandboxes.',
    { ...pool, previous_digest: text, digest: text },
  ),
};
