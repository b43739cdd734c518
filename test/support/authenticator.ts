import { encode } from 'cborg';
import { createHash, generateKeyPairSync, randomBytes, sign, type KeyObject } from 'node:crypto';
import type { ConsoleSession } from './console.js';

const [USER_PRESENT, USER_VERIFIED, HAS_CREDENTIAL] = [0x01, 0x04, 0x40];

/** Deviations of a hostile browser or authenticator. */
export interface Deviation {
  origin?: string;
  rpId?: string;
  /** Base64url. */
  challenge?: string;
  type?: string;
  crossOrigin?: boolean;
  isVerified?: boolean;
  isPresent?: boolean;
  /** Default: one more than before. */
  counter?: number;
  /** Base64url. */
  userHandle?: string;
  credentialId?: Buffer;
  format?: string;
  statement?: Map<string, unknown>;
  /** The COSE algorithm that the key names. */
  algorithm?: number;
  key?: KeyObject;
}

/** The parts of the options for browsers that an authenticator uses. */
export interface Options {
  challenge: string;
  rp?: { id: string };
  rpId?: string;
  user?: { id: string };
}

/** An authenticator in software, with one credential. */
export class Authenticator {
  readonly credentialId = randomBytes(32);
  private readonly keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  private counter = 0;
  private userHandle = '';

  constructor(private readonly origin: string) {}

  /** The body of the request that registers the credential. */
  create({ challenge, rp, user }: Options, name = 'key', how: Deviation = {}): Record<string, unknown> {
    this.userHandle = user!.id;
    const id = how.credentialId ?? this.credentialId;
    const { x, y } = this.keys.publicKey.export({ format: 'jwk' });
    const key = new Map<number, unknown>([
      [1, 2],
      [3, how.algorithm ?? -7],
      [-1, 1],
      [-2, Buffer.from(x!, 'base64url')],
      [-3, Buffer.from(y!, 'base64url')],
    ]);
    const length = Buffer.alloc(2);
    length.writeUInt16BE(id.length);
    const credential = Buffer.concat([Buffer.alloc(16), length, id, encode(key)]);
    const authData = Buffer.concat([this.data(rp!.id, HAS_CREDENTIAL, how), credential]);
    const attestation = new Map<string, unknown>([
      ['fmt', how.format ?? 'none'],
      ['attStmt', how.statement ?? new Map()],
      ['authData', authData],
    ]);
    return {
      name,
      credential_id: id.toString('base64url'),
      client_data: this.clientData('webauthn.create', challenge, how).toString('base64url'),
      attestation_object: Buffer.from(encode(attestation)).toString('base64url'),
      transports: ['internal'],
    };
  }

  /** The body of the request that signs in. */
  get({ challenge, rpId }: Options, how: Deviation = {}): Record<string, string> {
    const clientData = this.clientData('webauthn.get', challenge, how);
    const data = this.data(rpId!, 0, how);
    const signed = Buffer.concat([data, createHash('sha256').update(clientData).digest()]);
    return {
      credential_id: (how.credentialId ?? this.credentialId).toString('base64url'),
      client_data: clientData.toString('base64url'),
      authenticator_data: data.toString('base64url'),
      signature: sign('sha256', signed, how.key ?? this.keys.privateKey).toString('base64url'),
      user_handle: how.userHandle ?? this.userHandle,
    };
  }

  private clientData(type: string, challenge: string, how: Deviation): Buffer {
    const { origin = this.origin, crossOrigin = false } = how;
    return Buffer.from(
      JSON.stringify({ type: how.type ?? type, challenge: how.challenge ?? challenge, origin, crossOrigin }),
    );
  }

  private data(rpId: string, flags: number, how: Deviation): Buffer {
    this.counter = how.counter ?? this.counter + 1;
    const present = how.isPresent === false ? 0 : USER_PRESENT;
    const verified = how.isVerified === false ? 0 : USER_VERIFIED;
    const counter = Buffer.alloc(4);
    counter.writeUInt32BE(this.counter);
    const hash = createHash('sha256')
      .update(how.rpId ?? rpId)
      .digest();
    return Buffer.concat([hash, Buffer.from([flags | present | verified]), counter]);
  }
}

export interface Answered {
  status: number;
  code: string | undefined;
  body: Record<string, unknown>;
  cookies: string[];
}

export async function answeredBy(response: Response): Promise<Answered> {
  const text = await response.text();
  const body = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>;
  const { code } = (body['error'] ?? {}) as { code?: string };
  return { status: response.status, code, body, cookies: response.headers.getSetCookie() };
}

/** Adds a passkey to the member of a session. */
export async function addPasskey(
  session: ConsoleSession,
  authenticator: Authenticator,
  how: Deviation & { name?: string } = {},
): Promise<Answered> {
  const begun = await answeredBy(await session.fetch(`${PASSKEYS}/options`, { method: 'POST' }));
  if (begun.status !== 200) return begun;
  const answer = authenticator.create(begun.body as unknown as Options, how.name, how);
  return answeredBy(await session.fetch(PASSKEYS, { method: 'POST', body: JSON.stringify(answer) }));
}

export const PASSKEYS = '/console/session/passkeys';

/** A sign-in that a browser has begun. */
export async function beginSignIn(
  url: string,
  headers: Record<string, string> = {},
): Promise<Answered & { options: Options; cookie: string }> {
  const answer = await answeredBy(
    await fetch(`${url}/console/session/passkey/options`, { method: 'POST', headers }),
  );
  const [cookie = ''] = (answer.cookies[0] ?? '').split(';');
  return { ...answer, options: answer.body as unknown as Options, cookie };
}

export async function finishSignIn(url: string, answer: object, cookie: string): Promise<Answered> {
  return answeredBy(
    await fetch(`${url}/console/session/passkey`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(cookie === '' ? {} : { cookie }) },
      body: JSON.stringify(answer),
    }),
  );
}

export async function signInWith(
  url: string,
  authenticator: Authenticator,
  how: Deviation = {},
): Promise<Answered> {
  const { options, cookie } = await beginSignIn(url);
  return finishSignIn(url, authenticator.get(options, how), cookie);
}
