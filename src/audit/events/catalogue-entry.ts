import { Type, type TProperties, type TSchema } from 'typebox';
import type { EventActor } from './schema.js';

type ActorKind = EventActor['kind'];

export interface CatalogueEntry<Payload extends TSchema> {
  category: string;
  actors: readonly ActorKind[];
  when: string;
  payload: Payload;
}

export function event<P extends TProperties>(
  category: string,
  actors: readonly ActorKind[],
  when: string,
  payload: P,
): CatalogueEntry<ReturnType<typeof closed<P>>> {
  return { category, actors, when, payload: closed(payload) };
}

export function closed<P extends TProperties>(properties: P) {
  return Type.Object(properties, { additionalProperties: false });
}

export const CALLER = ['api_key', 'user'] as const;
export const SYSTEM = ['system'] as const;
