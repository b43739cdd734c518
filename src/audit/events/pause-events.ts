import { Type } from 'typebox';
import { DateTime, Nullable } from '../../http/schema.js';
import { event, SYSTEM } from './catalogue-entry.js';
import { end, run, sandbox, transition } from './run-payloads.js';

const ANYONE = ['api_key', 'user', 'system'] as const;

export const PAUSE_EVENTS = {
  sandbox_pause_requested: event(
    'sandbox',
    ANYONE,
    'A caller, or the idle timeout (`idle_timeout`), requested a pause: the memory goes to the disk, and the run ends.',
    { ...run, ...transition },
  ),
  sandbox_paused: event(
    'sandbox',
    SYSTEM,
    'The memory of a sandbox is on the disk, and its run ended. Its disk and its memory count as storage until its next start.',
    { ...end, ...transition },
  ),
  sandbox_pause_failed: event(
    'sandbox',
    SYSTEM,
    'The engine could not save the memory of a sandbox, which runs on.',
    { ...run, ...transition, message: Type.String() },
  ),
  sandbox_memory_discarded: event(
    'sandbox',
    ANYONE,
    'The memory of a paused sandbox was given up by a stop (`requested`) or a restart, or its engine has lost it (`lost`). Its next start begins anew from its disk.',
    { ...sandbox, ...transition, paused_at: Nullable(DateTime) },
  ),
};
