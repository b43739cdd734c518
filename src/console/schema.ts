import { Type, type Static } from 'typebox';
import { DateTime, Nullable, StringMap, Uuid } from '../http/schema.js';

export const SignInRequest = Type.Object({ key: Type.String() }, { additionalProperties: false });

export const SessionResponse = Type.Object({
  csrf_token: Type.String(),
  expires_at: DateTime,
  key: Type.Object({
    id: Uuid,
    name: Type.String(),
    prefix: Type.String(),
    scopes: Type.Array(Type.String()),
    labels: StringMap(),
    expires_at: Nullable(DateTime),
    organization: Type.Object({ id: Uuid, name: Type.String(), slug: Type.String() }),
  }),
});
export type SessionResponse = Static<typeof SessionResponse>;
