import type { Caller } from '../access/caller.js';
import type { Context } from '../context.js';

/** The part of the context that operations on webhooks use, which commands can provide too. */
export type WebhookContext = Pick<Context, 'pool' | 'now' | 'keyring' | 'tracing' | 'span'> & {
  settings: Pick<Context['settings'], 'webhooks'>;
};

export type WebhookCaller = Pick<Caller, 'orgId' | 'actor'>;
