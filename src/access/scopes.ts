/** `write` includes `read` of the same kind; `org:admin` includes every scope. */
export const SCOPES = [
  'sandboxes:read',
  'sandboxes:write',
  'sandboxes:exec',
  'volumes:read',
  'volumes:write',
  'events:read',
  'billing:read',
  'keys:read',
  'keys:write',
  'org:admin',
] as const;
export type Scope = (typeof SCOPES)[number];

export type RouteScope = Scope | 'any';

export const ADMIN: Scope = 'org:admin';

export function covers(held: readonly Scope[], needed: RouteScope): boolean {
  if (needed === 'any' || held.includes(ADMIN) || held.includes(needed)) return true;
  return needed.endsWith(':read') && (held as readonly string[]).includes(needed.replace(/read$/, 'write'));
}
