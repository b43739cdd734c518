import { Type, type Static } from 'typebox';
import { DateTime, Nullable, Uuid } from '../../http/schema.js';

export const LONGEST_PASSKEY_NAME = 100;

/** Bytes as base64url without padding. */
function bytes(most: number) {
  return Type.String({ pattern: '^[A-Za-z0-9_-]*$', minLength: 1, maxLength: Math.ceil((most * 4) / 3) });
}

/** The longest credential id that WebAuthn allows. */
const CredentialId = bytes(1_023);
const ClientData = bytes(2_048);

/** The answer of an authenticator to a new challenge. */
export const RegisterRequest = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: LONGEST_PASSKEY_NAME }),
    credential_id: CredentialId,
    client_data: ClientData,
    attestation_object: bytes(8_192),
    transports: Type.Array(Type.String({ pattern: '^[a-z-]{1,32}$' }), { maxItems: 10 }),
  },
  { additionalProperties: false },
);
export type RegisterRequest = Static<typeof RegisterRequest>;

export const RenameRequest = Type.Object(
  { name: Type.String({ minLength: 1, maxLength: LONGEST_PASSKEY_NAME }) },
  { additionalProperties: false },
);

export const AssertRequest = Type.Object(
  {
    credential_id: CredentialId,
    client_data: ClientData,
    authenticator_data: bytes(1_024),
    signature: bytes(1_024),
    user_handle: bytes(64),
  },
  { additionalProperties: false },
);
export type AssertRequest = Static<typeof AssertRequest>;

const closed = { additionalProperties: false };
const credential = Type.Object(
  { type: Type.Literal('public-key'), id: Type.String(), transports: Type.Array(Type.String()) },
  closed,
);

/** `PublicKeyCredentialCreationOptionsJSON` of WebAuthn. */
export const CreationOptions = Type.Object(
  {
    challenge: Type.String(),
    rp: Type.Object({ id: Type.String(), name: Type.String() }, closed),
    user: Type.Object({ id: Type.String(), name: Type.String(), displayName: Type.String() }, closed),
    pubKeyCredParams: Type.Array(
      Type.Object({ type: Type.Literal('public-key'), alg: Type.Integer() }, closed),
    ),
    timeout: Type.Integer(),
    attestation: Type.Literal('none'),
    excludeCredentials: Type.Array(credential),
    authenticatorSelection: Type.Object(
      {
        residentKey: Type.Literal('required'),
        requireResidentKey: Type.Literal(true),
        userVerification: Type.Literal('required'),
      },
      closed,
    ),
  },
  closed,
);
export type CreationOptions = Static<typeof CreationOptions>;

/** `PublicKeyCredentialRequestOptionsJSON` of WebAuthn. */
export const RequestOptions = Type.Object(
  {
    challenge: Type.String(),
    rpId: Type.String(),
    timeout: Type.Integer(),
    userVerification: Type.Literal('required'),
  },
  closed,
);
export type RequestOptions = Static<typeof RequestOptions>;

export const PasskeyResponse = Type.Object(
  {
    id: Uuid,
    name: Type.String(),
    created_at: DateTime,
    used_at: Nullable(DateTime),
    /** It opened the session of the request. */
    is_current: Type.Boolean(),
  },
  closed,
);
export type PasskeyResponse = Static<typeof PasskeyResponse>;

export const PasskeyList = Type.Object(
  {
    passkeys: Type.Array(PasskeyResponse),
    /** Why none can be added. Null: one can. */
    unavailable: Nullable(Type.String()),
  },
  closed,
);
export type PasskeyList = Static<typeof PasskeyList>;
