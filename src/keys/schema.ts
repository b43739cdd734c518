import { Type, type Static } from 'typebox';
import { EventActor } from '../events/schema.js';
import { DateTime, Int32, Named, Nullable, PageOf, StringMap, Uuid, Words } from '../http/schema.js';
import { DEFAULT_OVERLAP_SECS, LONGEST_OVERLAP_SECS } from './rotate.js';
import { SCOPES } from './scopes.js';

const KeyScope = Words([...SCOPES], {
  title: 'KeyScope',
  description: '`write` has `read` of the same kind in it, `org:admin` has all.',
});

const labels = {
  description:
    'The key sees, starts and makes only sandboxes that have all of these. Such a key can have no other scopes than those of sandboxes.',
};
const cidrs = 'The networks it is taken from, such as `10.0.0.0/8`; from everywhere when empty.';

const properties = {
  id: Uuid,
  name: Type.String(),
  prefix: Type.String({ description: 'The first characters of the key, by which it is recognised.' }),
  scopes: Type.Array(KeyScope),
  labels: StringMap(labels),
  cidrs: Type.Array(Type.String(), { description: cidrs }),
  created_at: DateTime,
  created_by: Nullable(EventActor),
  expires_at: Nullable(DateTime),
  last_used_at: Type.Unsafe<string | null>({
    ...Nullable(DateTime),
    description: 'Up to a minute behind.',
  }),
  rotated_at: Nullable(DateTime),
  revoked_at: Nullable(DateTime),
};

export const KeyResponse = Named('ApiKeyResponse', properties);
export type KeyResponse = Static<typeof KeyResponse>;

export const PaginatedKeyResponse = PageOf('PaginatedApiKeyResponse', KeyResponse);

export const KeyWithSecret = Named('ApiKeyWithSecret', {
  ...properties,
  key: Type.Unsafe<string | null>({
    type: ['string', 'null'],
    description:
      'The key itself, shown only now and stored nowhere. Null when the answer is repeated under an `Idempotency-Key`: rotate the key when the first answer was lost.',
  }),
});
export type KeyWithSecret = Static<typeof KeyWithSecret>;

export const CreateKeyRequest = Type.Object(
  {
    name: Type.String({ minLength: 1, description: 'What it is for; shown in the audit trail.' }),
    scopes: Type.Array(KeyScope, { minItems: 1, maxItems: SCOPES.length }),
    labels: Type.Optional(StringMap(labels)),
    cidrs: Type.Optional(Type.Array(Type.String(), { maxItems: 100, description: cidrs })),
    expires_at: Type.Optional(
      Nullable(Type.String({ description: 'RFC 3339 date-time; never when left out.' })),
    ),
  },
  { title: 'CreateApiKeyRequest', additionalProperties: false },
);
export type CreateKeyRequest = Static<typeof CreateKeyRequest>;

export const RotateKeyRequest = Type.Object(
  {
    overlap_secs: Type.Optional(
      Int32({
        maximum: LONGEST_OVERLAP_SECS,
        default: DEFAULT_OVERLAP_SECS,
        description: 'How long what it was until now still works, too. 0: it ends at once.',
      }),
    ),
  },
  { title: 'RotateApiKeyRequest', additionalProperties: false },
);
