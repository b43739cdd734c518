import { Type, type Static } from 'typebox';
import { MOST_ACCESS_LABELS } from '../access/access.js';
import { SCOPES } from '../access/scopes.js';
import { EventActor } from '../audit/events/schema.js';
import { labelsForm } from '../http/labels-form.js';
import {
  DateTime,
  documented,
  Field,
  Int32,
  Named,
  Nullable,
  PageOf,
  StringMap,
  Uuid,
  Words,
} from '../http/schema.js';
import { DEFAULT_OVERLAP_SECS, LONGEST_OVERLAP_SECS } from './rotate.js';

export const KeyScope = Words([...SCOPES], {
  title: 'KeyScope',
  description:
    'A permission of a key. `write` includes `read` of the same kind; `org:admin` includes every scope.',
});

const labels = {
  description:
    'The labels that a sandbox must have for the key to see, start or create it. A key with labels can have only the scopes of sandboxes.',
};
const cidrs = 'The networks that the key is accepted from, such as `10.0.0.0/8`. Empty: every network.';

const properties = {
  id: Field(Uuid, 'The id of the key.'),
  name: Type.String({ description: 'The name of the key, shown in the audit trail.' }),
  prefix: Type.String({ description: 'The first characters of the key, which identify it to people.' }),
  scopes: Type.Array(KeyScope, { description: 'The permissions of the key.' }),
  labels: StringMap(labels),
  cidrs: Type.Array(Type.String(), { description: cidrs }),
  created_at: Field(DateTime, 'The time at which the key was created.'),
  created_by: Field(Nullable(EventActor), 'The actor who created the key. Null when it is not known.'),
  expires_at: Field(Nullable(DateTime), 'The time from which the key is refused. Null: it does not expire.'),
  last_used_at: Field(
    Nullable(DateTime),
    'The last use of the key, at most a minute late. Null: it was never used.',
  ),
  rotated_at: Field(Nullable(DateTime), 'The time of the latest rotation. Null: there was none.'),
  previous_secret_until: Field(
    Nullable(DateTime),
    'The time until which previous secrets still work. Null: there are none.',
  ),
  revoked_at: Field(Nullable(DateTime), 'The time at which the key was revoked. Null: it was not.'),
};

export const KeyResponse = Named('ApiKeyResponse', properties, 'An API key without its secret.');
export type KeyResponse = Static<typeof KeyResponse>;

export const PaginatedKeyResponse = PageOf('PaginatedApiKeyResponse', KeyResponse);

export const KeyWithSecret = Named(
  'ApiKeyWithSecret',
  {
    ...properties,
    key: Type.Unsafe<string | null>({
      type: ['string', 'null'],
      description:
        'The key itself. It is shown only now and not stored. Null when the answer is repeated under an `Idempotency-Key`; rotate the key if the first answer was lost.',
    }),
  },
  'An API key with its secret.',
);
export type KeyWithSecret = Static<typeof KeyWithSecret>;

export const CreateKeyRequest = Type.Object(
  {
    name: Type.String({ minLength: 1, description: 'The purpose of the key, shown in the audit trail.' }),
    scopes: Type.Array(KeyScope, {
      minItems: 1,
      maxItems: SCOPES.length,
      description: 'The permissions of the key.',
    }),
    labels: Type.Optional(StringMap({ ...labelsForm(MOST_ACCESS_LABELS), ...labels })),
    cidrs: Type.Optional(Type.Array(Type.String(), { maxItems: 100, description: cidrs })),
    expires_at: Type.Optional(
      Nullable(
        Type.String({
          ...documented({ format: 'date-time' }),
          description: 'The RFC 3339 date-time from which the key is refused. Default: never.',
        }),
      ),
    ),
  },
  {
    title: 'CreateApiKeyRequest',
    description: 'The key to create. It may do no more than the key that creates it.',
    additionalProperties: false,
  },
);
export type CreateKeyRequest = Static<typeof CreateKeyRequest>;

export const RotateKeyRequest = Type.Object(
  {
    overlap_secs: Type.Optional(
      Int32({
        maximum: LONGEST_OVERLAP_SECS,
        default: DEFAULT_OVERLAP_SECS,
        description: 'The seconds for which the previous secret still works. 0: it ends at once.',
      }),
    ),
  },
  {
    title: 'RotateApiKeyRequest',
    description: 'The time for which the previous secret still works.',
    additionalProperties: false,
  },
);
