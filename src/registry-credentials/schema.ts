import { Type, type Static } from 'typebox';
import { EventActor } from '../audit/events/schema.js';
import { DateTime, Field, Named, Nullable, PageOf, Uuid } from '../http/schema.js';

const LONGEST_PATTERN = 255;
const LONGEST_USERNAME = 255;
/** Some registries take a whole key file of a service account as the password. */
const LONGEST_PASSWORD = 16_384;

const description = Nullable(Type.String({ maxLength: 200, description: 'The purpose of the credential.' }));
// A colon would end it in the header of a login.
const username = Type.String({
  minLength: 1,
  maxLength: LONGEST_USERNAME,
  pattern: '^[^\\u0000-\\u001f\\u007f:]+$',
  description: 'The user name at the registry, without a colon.',
});
const password = Type.String({
  minLength: 1,
  maxLength: LONGEST_PASSWORD,
  pattern: '^[^\\u0000]+$',
  format: 'password',
  description: 'The password or token at the registry. No answer has it.',
});

export const CreateRegistryCredentialRequest = Type.Object(
  {
    pattern: Type.String({
      minLength: 1,
      maxLength: LONGEST_PATTERN,
      description:
        'The images that are pulled with it: those of a registry (`ghcr.io`), or those whose repository begins with these parts (`ghcr.io/acme`). The longest pattern that matches an image wins.',
      examples: ['ghcr.io/acme'],
    }),
    username,
    password,
    description: Type.Optional(description),
  },
  {
    title: 'CreateRegistryCredentialRequest',
    description: 'The credential to store.',
    additionalProperties: false,
  },
);
export type CreateRegistryCredentialRequest = Static<typeof CreateRegistryCredentialRequest>;

export const UpdateRegistryCredentialRequest = Type.Object(
  {
    username: Type.Optional(username),
    password: Type.Optional(password),
    description: Type.Optional(description),
  },
  {
    title: 'UpdateRegistryCredentialRequest',
    description: 'The changes to a stored credential. Fields that are left out stay.',
    additionalProperties: false,
  },
);
export type UpdateRegistryCredentialRequest = Static<typeof UpdateRegistryCredentialRequest>;

export const TestRegistryCredentialRequest = Type.Object(
  {
    reference: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 512,
        description:
          'An image that the pattern matches. Its manifest is requested. Default: only the login is tested.',
        examples: ['ghcr.io/acme/app:1'],
      }),
    ),
  },
  {
    title: 'TestRegistryCredentialRequest',
    description: 'The image to ask for.',
    additionalProperties: false,
  },
);
export type TestRegistryCredentialRequest = Static<typeof TestRegistryCredentialRequest>;

export const RegistryCredentialResponse = Named(
  'RegistryCredentialResponse',
  {
    id: Field(Uuid, 'The id of the credential.'),
    org_id: Field(Uuid, 'The organization that the credential belongs to.'),
    pattern: Type.String({ description: 'The images that are pulled with it.' }),
    username: Type.String({ description: 'The user name at the registry.' }),
    description,
    has_password: Type.Boolean({
      description: 'False: the operator lost the keys of secrets. Set the password again.',
    }),
    created_at: Field(DateTime, 'The time at which the credential was stored.'),
    created_by: Field(EventActor, 'The actor who stored the credential.'),
    updated_at: Field(DateTime, 'The time at which the credential last changed.'),
  },
  'A stored credential of a registry, without its password.',
);
export type RegistryCredentialResponse = Static<typeof RegistryCredentialResponse>;

export const PaginatedRegistryCredentialResponse = PageOf(
  'PaginatedRegistryCredentialResponse',
  RegistryCredentialResponse,
);

export const RegistryCredentialTestResponse = Named(
  'RegistryCredentialTestResponse',
  {
    accepted: Type.Boolean({ description: 'Whether the registry accepted the request.' }),
    message: Type.String({ description: 'The result in words.' }),
  },
  'The result of a test of a stored credential.',
);
export type RegistryCredentialTestResponse = Static<typeof RegistryCredentialTestResponse>;
