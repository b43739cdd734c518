import type { ProviderSettings } from '../config/provider-settings.js';
import { isEmail, LONGEST_NAME } from '../members/check-person.js';
import { toStorable } from '../lib/storable-text.js';
import { SignInRefused } from './refused.js';

const LONGEST_SUBJECT = 255;
const MOST_GROUPS = 1_000;
/** A longer token does not go into an address. */
const LONGEST_ID_TOKEN = 4_096;

/** A person, as the provider describes the account. */
export interface Identity {
  issuer: string;
  subject: string;
  /** The session of the provider. */
  sid: string | null;
  /** Null: the provider gives no verified address. */
  email: string | null;
  name: string | null;
  groups: ReadonlySet<string>;
  /** For the sign-out. Null: it is too long for an address. */
  idToken: string | null;
}

/** Reads verified claims. Throws SignInRefused for a person that the options exclude. */
export function readIdentity(
  claims: Record<string, unknown>,
  idToken: string,
  settings: ProviderSettings,
): Identity {
  const subject = claims['sub'];
  if (
    typeof subject !== 'string' ||
    subject === '' ||
    subject.length > LONGEST_SUBJECT ||
    hasControls(subject)
  ) {
    throw new SignInRefused('provider', 'the subject of the ID token is not usable');
  }
  for (const [name, value] of Object.entries(settings.required)) {
    if (!valuesOf(claims[name]).includes(value)) throw new SignInRefused('not_allowed', `claim ${name}`);
  }
  const email = verifiedEmail(claims, settings);
  const { domains } = settings;
  if (domains.length > 0 && (email === null || !domains.includes(domainOf(email)))) {
    throw new SignInRefused(email === null ? 'unverified_email' : 'not_allowed', 'domain of the address');
  }
  const name = claims['name'];
  const sid = claims['sid'];
  return {
    issuer: settings.issuer,
    subject,
    sid: typeof sid === 'string' && sid.length <= LONGEST_SUBJECT && !hasControls(sid) ? sid : null,
    email,
    name: typeof name === 'string' && name.trim() !== '' ? toStorable(name).slice(0, LONGEST_NAME) : null,
    groups: new Set(valuesOf(claims[settings.groupsClaim]).slice(0, MOST_GROUPS)),
    idToken: idToken.length <= LONGEST_ID_TOKEN ? idToken : null,
  };
}

/** Only a boolean counts: the text "false" is true for some readers. */
function verifiedEmail(claims: Record<string, unknown>, { trustEmail }: ProviderSettings): string | null {
  const { email, email_verified: verified } = claims;
  if (typeof email !== 'string' || !isEmail(email)) return null;
  return verified === true || (verified === undefined && trustEmail) ? email : null;
}

function domainOf(email: string): string {
  return email.slice(email.lastIndexOf('@') + 1).toLowerCase();
}

function valuesOf(claim: unknown): string[] {
  return [claim].flat().filter((value) => typeof value === 'string');
}

function hasControls(text: string): boolean {
  return /[\0-\x1f\x7f]/.test(text) || !text.isWellFormed();
}
