import type { Store, StoredEvent } from './store-snapshot.js';
import { describe, type Asked, type Asker, type Operation } from './workload.js';

/** A successful operation records one of these events. */
const EVENTS: Record<Operation, readonly string[]> = {
  create: ['sandbox_created'],
  start: ['sandbox_start_requested', 'sandbox_start_queued'],
  stop: ['sandbox_stop_requested'],
  restart: ['sandbox_start_requested', 'sandbox_start_queued', 'sandbox_stop_requested'],
  delete: ['sandbox_destroyed'],
};

/**
 * Matches each event of a caller's key with one call of that caller, in order. Every acknowledged call has its event,
 * no refused call has one, and no call has two. Returns the faults.
 */
export function checkAsker(asker: Asker, store: Store): string[] {
  const wrong: string[] = [];
  const events = store.events.filter(({ actor_id }) => actor_id === asker.keyId);
  const used = new Set<Asked>();
  /** Sandboxes whose create requested the first start. */
  const startsWith = new Set<string>();
  /** Sandboxes with a run queued after the current one. `replay` finds those that never started. */
  const queued = new Set<string>();
  let position = -1;
  for (const event of events) {
    const { event_type: type, resource_id: id } = event;
    if (type === 'sandbox_start_requested' && (startsWith.delete(id) || queued.delete(id))) continue;
    // A create removes a sandbox of the name that never ran. The event of the creation follows.
    if (isReplaced(event)) continue;
    const fits = (asked: Asked, at: number) =>
      (asked.late || at > position) && !used.has(asked) && leaves(asked, event);
    const surely = asker.asked.findIndex((asked, at) => asked.id === id && fits(asked, at));
    const index = surely === -1 ? asker.asked.findIndex(fits) : surely;
    const cause = asker.asked[index];
    if (!cause) {
      wrong.push(`${type} of ${id} was asked for by nobody, or done twice: ${trail(asker, events)}`);
      continue;
    }
    used.add(cause);
    if (!cause.late) position = index;
    if (cause.starts && event.payload.source !== 'warm') startsWith.add(id);
    if (type === 'sandbox_start_queued' || event.payload.reason === 'restart') queued.add(id);
  }
  for (const id of startsWith) wrong.push(`${id} was created to start, and was not asked to`);
  return [...wrong, ...checkAcknowledged(asker, events, store)];
}

function checkAcknowledged({ org, asked }: Asker, events: StoredEvent[], store: Store): string[] {
  const wrong: string[] = [];
  for (const one of asked.filter(({ outcome }) => outcome === 'done')) {
    if (one.operation === 'create') {
      const row = store.sandboxes.get(one.id!);
      const created = events.filter((event) => event.resource_id === one.id && leaves(one, event));
      if (row?.org_id !== org.id || created.length !== 1) wrong.push(`lost: ${describe(one)}`);
    } else if (one.operation === 'delete' && 'id' in one.target) {
      if (!store.sandboxes.get(one.target.id)?.removed) wrong.push(`not done: ${describe(one)}`);
    }
  }
  const deletes = asked.filter(
    ({ operation, target, outcome }) => operation === 'delete' && 'name' in target && outcome === 'done',
  );
  for (const name of new Set(deletes.map(({ target }) => Object.values(target)[0]!))) {
    const acknowledged = deletes.filter(({ target }) => Object.values(target)[0] === name).length;
    const done = events.filter(
      (event) =>
        event.event_type === 'sandbox_destroyed' && event.payload.name === name && !isReplaced(event),
    ).length;
    if (done < acknowledged) wrong.push(`${acknowledged} deletions of ${name} acknowledged, ${done} done`);
  }
  return wrong;
}

function isReplaced({ event_type: type, payload }: StoredEvent): boolean {
  return type === 'sandbox_destroyed' && payload.reason === 'replaced';
}

function leaves({ operation, target, outcome, late, id }: Asked, event: StoredEvent): boolean {
  if (!EVENTS[operation].includes(event.event_type) || (outcome === 'refused' && !late)) return false;
  if (event.event_type === 'sandbox_stop_requested') {
    if ((operation === 'restart') !== (event.payload.reason === 'restart')) return false;
  }
  if (operation === 'create' && id !== undefined && id !== event.resource_id) return false;
  return 'id' in target ? target.id === event.resource_id : target.name === event.payload.name;
}

function trail({ asked }: Asker, events: readonly StoredEvent[]): string {
  const done = events.map(
    ({ event_type, resource_id, payload }) => `${event_type} ${resource_id} ${payload.name}`,
  );
  return ['', ...asked.map(describe), ...done].join('\n  ');
}
