import { isNarrowed, MOST_ACCESS_LABELS, type Access } from '../access/access.js';
import { covers, type Scope } from '../access/scopes.js';
import { ApiError } from '../http/errors.js';
import { isCidr, isSubnetOfAny } from '../lib/cidr.js';
import { parseInstant, type Instant } from '../lib/instant.js';
import { checkLabels } from '../lib/labels.js';

const NAME_LENGTH = 200;
const MOST_NETWORKS = 100;
const IPV4_IN_IPV6 = '::ffff:0:0/96';

export interface Asked {
  name: string;
  scopes: readonly Scope[];
  labels?: Record<string, string>;
  cidrs?: readonly string[];
  expires_at?: string | null;
}

/** Throws ApiError, which names the field. */
export function readAccess(asked: Asked, at: Instant): Access {
  const { name, labels = {}, cidrs = [] } = asked;
  if (name.trim() === '' || name.length > NAME_LENGTH) {
    throw refusal('name', `the name of a key must have 1 to ${NAME_LENGTH} characters`);
  }
  const scopes = [...new Set(asked.scopes)];
  if (scopes.length === 0) throw refusal('scopes', 'a key needs at least one scope');
  const badLabel = checkLabels(labels);
  if (badLabel) throw refusal(`labels.${badLabel.key}`, badLabel.message);
  if (Object.keys(labels).length > MOST_ACCESS_LABELS) {
    throw refusal('labels', `a key can be narrowed to at most ${MOST_ACCESS_LABELS} labels`);
  }
  const tooWide = isNarrowed({ labels })
    ? scopes.find((scope) => !covers(['sandboxes:write', 'sandboxes:exec'], scope))
    : undefined;
  if (tooWide !== undefined) {
    throw refusal(
      'scopes',
      `a key that is narrowed to labels can only have the scopes of sandboxes: what ${tooWide} opens cannot be told apart by labels`,
    );
  }
  if (cidrs.length > MOST_NETWORKS) {
    throw refusal('cidrs', `a key can be bound to at most ${MOST_NETWORKS} networks`);
  }
  const badNetwork = cidrs.findIndex((network) => !isCidr(network));
  if (badNetwork !== -1) {
    throw refusal(
      `cidrs[${badNetwork}]`,
      'a network is written like 10.0.0.0/8, 2001:db8::/32, or as an address',
    );
  }
  const mapped = cidrs.findIndex((network) => isSubnetOfAny(network, [IPV4_IN_IPV6]));
  if (mapped !== -1) {
    throw refusal(
      `cidrs[${mapped}]`,
      'addresses of IPv4 are compared as such: write ::ffff:10.0.0.0/104 as 10.0.0.0/8',
    );
  }
  const expiresAt = readExpiry(asked.expires_at ?? null, at);
  return { scopes, labels, cidrs, expiresAt, replaced: false };
}

function readExpiry(text: string | null, at: Instant): Instant | null {
  if (text === null) return null;
  const instant = parseInstant(text);
  if (!instant) {
    throw refusal(
      'expires_at',
      'expires_at must be an RFC 3339 date-time with an offset, such as 2026-11-21T10:07:00Z',
    );
  }
  if (instant <= at) throw refusal('expires_at', 'expires_at must be in the future');
  return instant;
}

/**
 * Refuses a new key, or a new secret of a key, when that key has more rights than `own`, the key of the caller. A
 * replaced secret creates none at all: a thief of it would keep access after its end. Keys that are narrowed to labels
 * do not get here, because they cannot have the scope.
 */
export function refuseBroaderAccess(own: Access, other: Access): void {
  if (own.replaced)
    throw exceeding('expires_at', 'its secret was replaced and ends soon, so use the new one');
  const scope = other.scopes.find((each) => !covers(own.scopes, each));
  if (scope !== undefined) throw exceeding('scopes', `it does not have the scope ${scope}`);
  const wider = other.cidrs.find((network) => !isSubnetOfAny(network, own.cidrs));
  if (own.cidrs.length > 0 && (other.cidrs.length === 0 || wider !== undefined)) {
    throw exceeding('cidrs', `it is itself bound to the networks ${own.cidrs.join(', ')}`);
  }
  if (own.expiresAt !== null && (other.expiresAt === null || other.expiresAt > own.expiresAt)) {
    throw exceeding('expires_at', `it expires itself at ${own.expiresAt}`);
  }
}

function exceeding(field: string, why: string): ApiError {
  return new ApiError(
    'key_exceeds_caller',
    `a key cannot create a key with more rights than its own: ${why}`,
    {
      field,
    },
  );
}

function refusal(field: string, message: string): ApiError {
  return new ApiError('invalid_request', message, { field });
}
