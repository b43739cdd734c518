import {
  startAuthentication,
  startRegistration,
  type PublicKeyCredentialCreationOptionsJSON,
  type PublicKeyCredentialRequestOptionsJSON,
} from '@simplewebauthn/browser';
import { Problem, request } from './api';
import { session, type Session } from './session';

const OWN = '/console/session/passkeys';
const SIGN_IN = '/console/session/passkey';

export interface Passkey {
  id: string;
  name: string;
  created_at: string;
  /** Null: it was never used. */
  used_at: string | null;
  /** It opened this session. */
  is_current: boolean;
}

export interface Passkeys {
  passkeys: Passkey[];
  /** Why none can be added. Null: one can. */
  unavailable: string | null;
}

export async function ownPasskeys(signal: AbortSignal): Promise<Passkeys> {
  return (await (await request(OWN, { signal })).json()) as Passkeys;
}

export async function addPasskey(name: string): Promise<void> {
  const optionsJSON = (await post(`${OWN}/options`)) as PublicKeyCredentialCreationOptionsJSON;
  const { id, response } = await answerOf(() => startRegistration({ optionsJSON }));
  await post(OWN, {
    name,
    credential_id: id,
    client_data: response.clientDataJSON,
    attestation_object: response.attestationObject,
    transports: response.transports ?? [],
  });
}

export async function renamePasskey(id: string, name: string): Promise<void> {
  await request(`${OWN}/${id}`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name }),
  });
}

export async function removePasskey(id: string): Promise<void> {
  await request(`${OWN}/${id}`, { method: 'DELETE' });
}

/** The browser asks which passkey, and its authenticator verifies the person. */
export async function signInByPasskey(): Promise<void> {
  const optionsJSON = (await post(`${SIGN_IN}/options`)) as PublicKeyCredentialRequestOptionsJSON;
  const { id, response } = await answerOf(() => startAuthentication({ optionsJSON }));
  session.value = (await post(SIGN_IN, {
    credential_id: id,
    client_data: response.clientDataJSON,
    authenticator_data: response.authenticatorData,
    signature: response.signature,
    user_handle: response.userHandle ?? '',
  })) as Session;
}

async function post(address: string, body?: object): Promise<unknown> {
  const answer = await request(address, {
    method: 'POST',
    ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  return answer.json();
}

/** Turns the errors of browsers, which are for programmers, into a Problem. */
async function answerOf<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const message =
      error.name === 'InvalidStateError'
        ? 'This device has a passkey of yours already.'
        : error.name === 'NotAllowedError'
          ? 'The browser has no passkey for this console, or was not allowed to use it.'
          : `The browser cannot use a passkey here: ${error.message}`;
    throw new Problem(400, 'no_passkey', message, {}, null, null);
  }
}
