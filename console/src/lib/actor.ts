import type { EventResponse } from './api-types';

export function actorOf({ actor }: Pick<EventResponse, 'actor'>): string {
  if (actor.kind === 'api_key') return `key ${actor.name}`;
  if (actor.kind === 'ssh_key') return `SSH key ${actor.label ?? actor.fingerprint}`;
  return actor.label;
}

/** The name of the subject of an event, if its payload has one. */
export function nameIn(payload: unknown): string {
  const { name } = (payload ?? {}) as { name?: unknown };
  return typeof name === 'string' ? name : '';
}
