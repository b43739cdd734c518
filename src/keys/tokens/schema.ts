import { Type, type Static } from 'typebox';
import { SCOPES } from '../../access/scopes.js';
import { DateTime, Field, Int32, Named, Nullable, PageOf, Uuid } from '../../http/schema.js';
import { KeyScope } from '../schema.js';
import { DEFAULT_TOKEN_DAYS, LONGEST_TOKEN_DAYS, LONGEST_TOKEN_NAME } from './create.js';

const properties = {
  id: Field(Uuid, 'The id of the token.'),
  name: Type.String({ description: 'The name of the token, shown in the audit trail.' }),
  prefix: Type.String({ description: 'The first characters of the token, which identify it to people.' }),
  scopes: Type.Array(KeyScope, {
    description:
      'The most that the token opens. Of these it opens the ones that the role of the member has now.',
  }),
  member_id: Field(Uuid, 'The id of the membership whose token it is.'),
  email: Type.String({ description: 'The email address of the member.' }),
  created_at: Field(DateTime, 'The time at which the token was created.'),
  expires_at: Field(DateTime, 'The time from which the token is refused.'),
  last_used_at: Field(
    Nullable(DateTime),
    'The last use of the token, at most a minute late. Null: it was never used.',
  ),
};

export const TokenResponse = Named(
  'PersonalTokenResponse',
  properties,
  'A personal token without its secret: a key of a member.',
);
export type TokenResponse = Static<typeof TokenResponse>;

export const PaginatedTokenResponse = PageOf('PaginatedPersonalTokenResponse', TokenResponse);

export const TokenWithSecret = Named(
  'PersonalTokenWithSecret',
  {
    ...properties,
    token: Type.String({ description: 'The token itself. It is shown only now and not stored.' }),
  },
  'A personal token with its secret.',
);

export const CreateTokenRequest = Type.Object(
  {
    name: Type.String({
      minLength: 1,
      maxLength: LONGEST_TOKEN_NAME,
      description: 'The purpose of the token, shown in the audit trail.',
    }),
    scopes: Type.Optional(
      Type.Array(KeyScope, {
        minItems: 1,
        maxItems: SCOPES.length,
        description: 'The most that the token opens. Default: the present scopes of the member.',
      }),
    ),
    expires_in_days: Type.Optional(
      Int32({
        minimum: 1,
        maximum: LONGEST_TOKEN_DAYS,
        default: DEFAULT_TOKEN_DAYS,
        description: 'The days for which the token works.',
      }),
    ),
  },
  {
    title: 'CreatePersonalTokenRequest',
    description: 'The token to create. It never opens more than its member may.',
    additionalProperties: false,
  },
);
