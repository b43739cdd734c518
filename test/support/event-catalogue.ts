import { CATALOGUE, type EventType } from '../../src/audit/events/catalogue.js';
import { leafOf, type EventContent } from '../../src/audit/events/hash-chain.js';
import { isUnreachable, type Pool } from '../../src/db/pool.js';
import { explainFirst, validatorOf } from '../../src/http/validation.js';

type Written = EventContent & { leaf: Buffer };

/**
 * Throws when an event of the service does not match the catalogue. Imported events have no leaf and tampered events
 * have a wrong one, so both are skipped.
 */
export async function expectCatalogued(pool: Pool): Promise<void> {
  const { rows } = await pool
    .query<Written & Record<string, unknown>>(
      `select org_id, id, occurred_at, category, event_type, actor, payload, resource_id, leaf
       from events where leaf is not null`,
    )
    .catch((error: unknown) => {
      // A test that stops the database has no events to check.
      if (isUnreachable(error)) return { rows: [] as Written[] };
      throw error;
    });
  const wrong = new Set(rows.filter((row) => leafOf(row).equals(row.leaf)).flatMap(whatIsWrong));
  if (wrong.size > 0) throw new Error(`events that are not in the catalogue:\n${[...wrong].join('\n')}`);
}

const validators = new Map(
  Object.entries(CATALOGUE).map(([type, { payload }]) => [type, validatorOf(payload)] as const),
);

function whatIsWrong({ event_type, category, actor, payload }: Written): string[] {
  const validate = validators.get(event_type);
  if (!validate) return [`${event_type}: unknown`];
  const entry = CATALOGUE[event_type as EventType];
  const kinds: readonly string[] = entry.actors;
  return [
    ...(category === entry.category ? [] : [`${event_type}: category ${category}`]),
    ...(kinds.includes(actor.kind) ? [] : [`${event_type}: actor ${actor.kind}`]),
    ...(validate(payload)
      ? []
      : [`${event_type}: ${explainFirst(validate.errors ?? [])}: ${JSON.stringify(payload)}`]),
  ];
}
