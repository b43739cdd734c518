import type { EventActor } from './schema.js';

/** The operator at the command line. `command`: for example `org create`. */
export function operator(command: string): EventActor {
  return { kind: 'system', code: 'operator', label: `sandkeep ${command}` };
}

export const RECONCILER: EventActor = { kind: 'system', code: 'reconciler', label: 'Sandkeep reconciler' };
export const QUOTAS: EventActor = { kind: 'system', code: 'quotas', label: 'Sandkeep quotas' };
export const BUDGETS: EventActor = { kind: 'system', code: 'budgets', label: 'Sandkeep budgets' };
export const PLACEMENT: EventActor = { kind: 'system', code: 'placement', label: 'Sandkeep placement' };
export const POOLS: EventActor = { kind: 'system', code: 'pools', label: 'Sandkeep pools' };
export const PREVIEW_WAKE: EventActor = { kind: 'system', code: 'preview_wake', label: 'Sandkeep previews' };
export const WEBHOOKS: EventActor = { kind: 'system', code: 'webhooks', label: 'Sandkeep webhooks' };
export const KEYS: EventActor = { kind: 'system', code: 'keys', label: 'Sandkeep keys' };
export const PROVIDER: EventActor = { kind: 'system', code: 'sign_in', label: 'Sandkeep sign-in' };
export const LOG: EventActor = { kind: 'system', code: 'event_log', label: 'Sandkeep event log' };
export const RETENTION: EventActor = { kind: 'system', code: 'retention', label: 'Sandkeep retention' };
export const DISKS: EventActor = { kind: 'system', code: 'disks', label: 'Sandkeep disk reserve' };
export const NETWORK: EventActor = { kind: 'system', code: 'network', label: 'Sandkeep network record' };
export const PRICES: EventActor = { kind: 'system', code: 'prices', label: 'Sandkeep price book' };

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

/** Null: the actor is no API key. */
export function keyIdOf(actor: EventActor): string | null {
  return actor.kind === 'api_key' ? actor.api_key_id : null;
}
