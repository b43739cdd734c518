import type { EventResponse } from './api-types';

export function actorOf({ actor }: Pick<EventResponse, 'actor'>): string {
  if (actor.kind === 'api_key') return `key ${actor.name}`;
  if (actor.kind === 'ssh_key') return `SSH key ${actor.label ?? actor.fingerprint}`;
  return actor.label;
}
