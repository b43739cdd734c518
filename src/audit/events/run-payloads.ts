import { Type } from 'typebox';
import { DateTime, Nullable, Uuid, Words } from '../../http/schema.js';
import { STATUSES, StopReason } from '../../spec/statuses.js';

/** Parts of the payloads of events about sandboxes and their runs. */

const text = Type.String();
const reason = Type.String({ description: 'The reason, as a code.' });
const time = Nullable(DateTime);
const status = Words([...STATUSES]);

export const sandbox = { sandbox_id: Uuid, name: text };
export const transition = { previous_status: status, status, reason };
export const run = { ...sandbox, run_id: Nullable(Uuid) };
export const end = {
  ...run,
  reason,
  stop_reason: Type.Optional(StopReason),
  message: Nullable(text),
  exit_code: Nullable(Type.Integer()),
  started_at: time,
  stopped_at: time,
};
