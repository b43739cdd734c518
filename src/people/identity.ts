import type { ProviderSettings } from '../config/provider-settings.js';
import { isEmail, LONGEST_NAME } from '../members/check-person.js';
import { toStorable } from '../lib/storable-text.js';
import { SignInRefused } from './refused.js';

const LONGEST_SUBJECT = 255;
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
    throw new SignInRefused(
      'provider',
      'the claim sub of the ID token is empty, too long or has control characters: the provider must send another',
    );
  }
  for (const [name, value] of Object.entries(settings.required)) {
    if (!valuesOf(claimAt(claims, name)).includes(value))
      throw new SignInRefused('not_allowed', `the claim ${name} is not ${value}: see --oidc-require`);
  }
  const email = verifiedEmail(claims, settings);
  const { domains } = settings;
  if (domains.length > 0 && (email === null || !domains.includes(domainOf(email)))) {
    const code = email === null ? 'unverified_email' : 'not_allowed';
    throw new SignInRefused(code, 'the account has no verified address of a domain in --oidc-domains');
  }
  const name = typeof claims['name'] === 'string' ? claims['name'].trim() : '';
  const sid = claims['sid'];
  return {
    issuer: settings.issuer,
    subject,
    sid: typeof sid === 'string' && sid.length <= LONGEST_SUBJECT && !hasControls(sid) ? sid : null,
    email,
    name: name === '' ? null : toStorable(name.slice(0, LONGEST_NAME)),
    groups: groupsOf(claims, settings),
    idToken: idToken.length <= LONGEST_ID_TOKEN ? idToken : null,
  };
}

/**
 * The claims of the ID token, and those that only userinfo has. An address and its verification come from one of the
 * two: from userinfo where the ID token does not say whether its address is verified.
 */
export function joinClaims(
  token: Record<string, unknown>,
  userinfo: Record<string, unknown>,
  settings: Pick<ProviderSettings, 'trustEmail'>,
): Record<string, unknown> {
  const source = hasAddress(token, settings) || userinfo['email'] === undefined ? token : userinfo;
  const { email, email_verified } = source;
  return { ...userinfo, ...token, email, email_verified };
}

/** Whether userinfo can be left out: the ID token has every claim that the sign-in needs. */
export function isWhole(
  token: Record<string, unknown>,
  settings: Pick<ProviderSettings, 'trustEmail' | 'required' | 'groupRules' | 'groupsClaim'>,
): boolean {
  const needed = Object.keys(settings.required);
  if (settings.groupRules.length > 0) needed.push(settings.groupsClaim);
  return hasAddress(token, settings) && needed.every((name) => claimAt(token, name) !== undefined);
}

/** An address, and whether it is verified. */
function hasAddress(
  { email, email_verified }: Record<string, unknown>,
  { trustEmail }: Pick<ProviderSettings, 'trustEmail'>,
): boolean {
  return email !== undefined && (email_verified !== undefined || trustEmail);
}

/** Only a boolean counts: the text "false" is true for some readers. */
function verifiedEmail(claims: Record<string, unknown>, { trustEmail }: ProviderSettings): string | null {
  const { email, email_verified: verified } = claims;
  if (typeof email !== 'string' || !isEmail(email)) return null;
  return verified === true || (verified === undefined && trustEmail) ? email : null;
}

/**
 * A token cannot hold any number of groups. The provider then leaves all of them out, and names another place for them
 * (OpenID Connect Core, section 5.6.2). Without this refusal the person would lose the memberships of its groups.
 */
function groupsOf(
  claims: Record<string, unknown>,
  { groupsClaim, groupRules }: ProviderSettings,
): ReadonlySet<string> {
  const groups = claimAt(claims, groupsClaim);
  const elsewhere = claims['_claim_names'];
  const isElsewhere =
    typeof elsewhere === 'object' && elsewhere !== null && Object.hasOwn(elsewhere, groupsClaim);
  if (groupRules.length > 0 && groups === undefined && isElsewhere) {
    throw new SignInRefused(
      'provider',
      `the person has too many groups for the claim ${groupsClaim}: let the provider send only groups of --oidc-roles`,
    );
  }
  return new Set(valuesOf(groups));
}

/** A claim by its name, else by a path into objects: Keycloak has its roles at `realm_access.roles`. */
function claimAt(claims: Record<string, unknown>, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name];
  let value: unknown = claims;
  for (const part of name.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return undefined;
    value = (value as Record<string, unknown>)[part];
  }
  return value;
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
