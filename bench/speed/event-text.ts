import { hash } from 'node:crypto';
import { actorId, RECONCILER } from '../../src/audit/events/actor.js';
import { canonicalJson } from '../../src/audit/events/canonical-json.js';
import { CATALOGUE, type EventType } from '../../src/audit/events/catalogue.js';
import { leafOf, type EventContent } from '../../src/audit/events/hash-chain.js';
import type { EventActor } from '../../src/audit/events/schema.js';
import type { LoadedSandbox } from './load-sandboxes.js';

/** The recurring events of a sandbox. */
const LIFE = [
  ['sandbox_created', { previous_status: null, status: 'created', reason: 'requested' }],
  ['sandbox_start_requested', { previous_status: 'created', status: 'starting', reason: 'requested' }],
  ['sandbox_started', { previous_status: 'starting', status: 'running', reason: 'started' }],
  ['sandbox_stop_requested', { previous_status: 'running', status: 'stopping', reason: 'requested' }],
  ['sandbox_stopped', { previous_status: 'stopping', status: 'stopped', reason: 'exited' }],
] as const satisfies readonly (readonly [EventType, Record<string, unknown>])[];
export const LIFE_LENGTH = LIFE.length;

/** The parts that differ between events: the id and time of the event, and the sandbox with its run. */
const HOLES = ['id', 'at', 'name', 'run', 'sandbox'] as const;
type Hole = (typeof HOLES)[number];
const holeOf = (hole: Hole) => `<${hole}>`;

export interface EventText {
  type: EventType;
  category: string;
  leaf: Buffer;
  /** Columns of `events` in the format of COPY, from the category to the resource. */
  columns: string;
}

/**
 * The text of an organization's events, from a template for each type. Objects and canonical JSON for ten million
 * events took most of the loading time.
 */
export function eventTexts(
  orgId: string,
  keyId: string,
): (index: number, id: string, at: string, sandbox: LoadedSandbox) => EventText {
  const caller: EventActor = { kind: 'api_key', api_key_id: keyId, name: 'bench' };
  const texts = LIFE.map(([type, change]) => {
    const event = (fill: (hole: Hole) => string): EventContent => ({
      org_id: orgId,
      id: fill('id'),
      occurred_at: fill('at'),
      category: CATALOGUE[type].category,
      event_type: type,
      actor: change.reason === 'requested' ? caller : RECONCILER,
      payload: { sandbox_id: fill('sandbox'), name: fill('name'), run_id: fill('run'), ...change },
      resource_id: fill('sandbox'),
    });
    const { category, actor, payload } = event(holeOf);
    const columns = [
      category,
      type,
      canonicalJson(actor),
      canonicalJson(payload),
      actor.kind,
      actorId(actor),
    ];
    return {
      type,
      category,
      event,
      checked: false,
      content: filler(canonicalJson(event(holeOf))),
      columns: filler([...columns, holeOf('sandbox')].join('\t')),
    };
  });
  return (index, id, at, sandbox) => {
    const text = texts[index % LIFE.length]!;
    const values = { id, at, name: sandbox.name, run: sandbox.runId, sandbox: sandbox.id };
    const leaf = hash('sha256', text.content(values), 'buffer');
    if (!text.checked && !leaf.equals(leafOf(text.event((hole) => values[hole])))) {
      throw new Error('the text of an event is not what it has to be');
    }
    text.checked = true;
    return { type: text.type, category: text.category, leaf, columns: text.columns(values) };
  };
}

/** Fills in the parts. Their values need no escapes in JSON or COPY. */
function filler(text: string): (values: Record<Hole, string>) => string {
  const parts = text.split(new RegExp(`<(${HOLES.join('|')})>`));
  return (values) => {
    let filled = parts[0]!;
    for (let index = 1; index < parts.length; index += 2) {
      filled += values[parts[index] as Hole] + parts[index + 1]!;
    }
    return filled;
  };
}
