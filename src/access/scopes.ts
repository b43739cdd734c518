/** What a key can be allowed to do. `write` has `read` of the same kind in it, `org:admin` has all. */
export const SCOPES = [
  'sandboxes:read',
  'sandboxes:write',
  'volumes:read',
  'volumes:write',
  'events:read',
  'billing:read',
  'keys:read',
  'keys:write',
  'org:admin',
] as const;
export type Scope = (typeof SCOPES)[number];

/** What a route asks for: a scope, or `any` for what every key may see. */
export type RouteScope = Scope | 'any';

export const ADMIN: Scope = 'org:admin';

/** May a key with the scopes `held` do what asks for `needed`? */
export function covers(held: readonly Scope[], needed: RouteScope): boolean {
  if (needed === 'any' || held.includes(ADMIN) || held.includes(needed)) return true;
  return needed.endsWith(':read') && (held as readonly string[]).includes(needed.replace(/read$/, 'write'));
}
