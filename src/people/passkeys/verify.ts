import type { RelyingParty } from '../../config/passkey-settings.js';
import type { AssertRequest, RegisterRequest } from './schema.js';

/** COSE algorithms: Ed25519, ECDSA with P-256, RSA. Every authenticator has one of them. */
export const ALGORITHMS = [-8, -7, -257];

/** An answer of an authenticator that is not accepted. The message is for the log of the operator. */
export class PasskeyRefused extends Error {}

interface Expected {
  challenge: Buffer;
  party: RelyingParty;
}

/** The library is loaded with the first passkey. */
const load = async () => ({
  ...(await import('@simplewebauthn/server')),
  ...(await import('@simplewebauthn/server/helpers')),
});

/** Throws PasskeyRefused. */
export async function verifyRegistration(
  { credential_id: id, client_data, attestation_object }: RegisterRequest,
  { challenge, party }: Expected,
): Promise<{ credentialId: Buffer; publicKey: Uint8Array; counter: number }> {
  const library = await load();
  return refusing(async () => {
    refuseFrames(library.decodeClientDataJSON(client_data));
    const format = library
      .decodeAttestationObject(library.isoBase64URL.toBuffer(attestation_object))
      .get('fmt');
    // The library would parse certificates, and request the revocation lists that they name.
    if (format !== 'none') throw new PasskeyRefused('the attestation is not "none"');
    const { verified, registrationInfo } = await library.verifyRegistrationResponse({
      response: {
        id,
        rawId: id,
        type: 'public-key',
        clientExtensionResults: {},
        response: { clientDataJSON: client_data, attestationObject: attestation_object },
      },
      expectedChallenge: challenge.toString('base64url'),
      expectedOrigin: party.origin,
      expectedRPID: party.id,
      requireUserVerification: true,
      supportedAlgorithmIDs: ALGORITHMS,
    });
    if (!verified) throw new PasskeyRefused('the attestation is not valid');
    const { credential } = registrationInfo;
    if (credential.id !== id) throw new PasskeyRefused('the credential has another id than its attestation');
    return {
      credentialId: Buffer.from(credential.id, 'base64url'),
      publicKey: credential.publicKey,
      counter: credential.counter,
    };
  });
}

/** Returns the new counter. Throws PasskeyRefused. */
export async function verifyAssertion(
  { credential_id: id, client_data, authenticator_data, signature, user_handle }: AssertRequest,
  { public_key, counter }: { public_key: Buffer; counter: number },
  { challenge, party }: Expected,
): Promise<number> {
  const library = await load();
  return refusing(async () => {
    refuseFrames(library.decodeClientDataJSON(client_data));
    const { verified, authenticationInfo } = await library.verifyAuthenticationResponse({
      response: {
        id,
        rawId: id,
        type: 'public-key',
        clientExtensionResults: {},
        response: {
          clientDataJSON: client_data,
          authenticatorData: authenticator_data,
          signature,
          userHandle: user_handle,
        },
      },
      expectedChallenge: challenge.toString('base64url'),
      expectedOrigin: party.origin,
      expectedRPID: party.id,
      credential: { id, publicKey: new Uint8Array(public_key), counter },
      requireUserVerification: true,
    });
    if (!verified) throw new PasskeyRefused('the signature is wrong');
    return authenticationInfo.newCounter;
  });
}

/** The library accepts an answer from a frame in a page of another origin, of browsers that do not name that origin. */
function refuseFrames({ crossOrigin }: { crossOrigin?: boolean }): void {
  if (crossOrigin === true) throw new PasskeyRefused('the page was in a frame of another origin');
}

/** The library throws errors of many kinds for malformed answers. */
async function refusing<T>(verify: () => Promise<T>): Promise<T> {
  try {
    return await verify();
  } catch (error) {
    if (error instanceof PasskeyRefused) throw error;
    throw new PasskeyRefused('the answer of the authenticator is not valid', { cause: error });
  }
}
