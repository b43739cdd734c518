import type { Caller } from '../access/caller.js';
import type { Context } from '../context.js';

/** What operations on webhooks need: the service has it, and so has a command. */
export type WebhookContext = Pick<Context, 'pool' | 'now' | 'keyring'> & {
  settings: Pick<Context['settings'], 'webhooks'>;
};

/** For whom, and who does it. */
export type WebhookCaller = Pick<Caller, 'orgId' | 'actor'>;
