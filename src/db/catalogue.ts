import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../lib/package-root.js';
import { EVERY_OBJECT } from './catalogue-query.js';
import type { Sql } from './pool.js';
import { REQUEST_ROLE } from './request-role.js';

/** The definition of each object that can change the effect of a statement, the same on every version of PostgreSQL. */
export type Catalogue = Record<string, string>;

/** Null: there is no such object. */
export interface Difference {
  object: string;
  wanted: string | null;
  found: string | null;
}

export async function readCatalogue(tx: Sql): Promise<Catalogue> {
  // Definitions then have the schema of each name.
  await tx.query('set local search_path = pg_catalog');
  const { rows } = await tx.query<{ object: string; definition: string }>(EVERY_OBJECT, [REQUEST_ROLE]);
  return Object.fromEntries(rows.map(({ object, definition }) => [object, definition]));
}

/** The catalogue after the migrations of this release. "npm run generate" makes it. */
export function wantedCatalogue(): Catalogue {
  return JSON.parse(readFileSync(join(PACKAGE_ROOT, 'catalogue.json'), 'utf8')) as Catalogue;
}

/** Without the role of requests nobody has its grants. */
export function compareCatalogues(wanted: Catalogue, found: Catalogue): Difference[] {
  const isGrant = (object: string) => object.endsWith(` to ${REQUEST_ROLE}`);
  const hasRole = Object.keys(found).some(isGrant);
  return [...new Set([...Object.keys(wanted), ...Object.keys(found)])]
    .toSorted()
    .filter((object) => wanted[object] !== found[object] && (hasRole || !isGrant(object)))
    .map((object) => ({ object, wanted: wanted[object] ?? null, found: found[object] ?? null }));
}
