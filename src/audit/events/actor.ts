import type { EventActor } from './schema.js';

/** The operator at the command line. `command`: what was called, such as `org create`. */
export function operator(command: string): EventActor {
  return { kind: 'system', code: 'operator', label: `sandkeep ${command}` };
}

/** Sandkeep itself, doing what the store says should be. */
export const RECONCILER: EventActor = { kind: 'system', code: 'reconciler', label: 'Sandkeep reconciler' };

/** Sandkeep itself, keeping an organization to its quotas. */
export const QUOTAS: EventActor = { kind: 'system', code: 'quotas', label: 'Sandkeep quotas' };

/** Sandkeep itself, giving starts a place. */
export const PLACEMENT: EventActor = { kind: 'system', code: 'placement', label: 'Sandkeep placement' };

/** Sandkeep itself, sending events. */
export const WEBHOOKS: EventActor = { kind: 'system', code: 'webhooks', label: 'Sandkeep webhooks' };

/** Sandkeep itself, watching over keys. */
export const KEYS: EventActor = { kind: 'system', code: 'keys', label: 'Sandkeep keys' };

/** Sandkeep itself, putting events into the log. */
export const LOG: EventActor = { kind: 'system', code: 'event_log', label: 'Sandkeep event log' };

/** Sandkeep itself, dropping events that are kept no longer. */
export const RETENTION: EventActor = { kind: 'system', code: 'retention', label: 'Sandkeep retention' };

/** Sandkeep itself, beginning with other prices. */
export const PRICES: EventActor = { kind: 'system', code: 'prices', label: 'Sandkeep price book' };

/** What the `actor_id` filter compares with. */
export function actorId(actor: EventActor): string {
  switch (actor.kind) {
    case 'user':
      return actor.user_id;
    case 'api_key':
      return actor.api_key_id;
    case 'system':
      return actor.code;
    case 'ssh_key':
      return actor.key_id;
  }
}
