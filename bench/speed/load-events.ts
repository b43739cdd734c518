import type { Client } from 'pg';
import { v7 as uuidv7 } from 'uuid';
import type { EventKeys } from '../../src/audit/events/event-keys.js';
import { linkOf, genesisLink } from '../../src/audit/events/hash-chain.js';
import { signCheckpoint } from '../../src/audit/log/checkpoint.js';
import { monthAfter, startOfMonth } from '../../src/lib/instant.js';
import { copyRows, RowWriter, type Cell } from './copy.js';
import { eventTexts, LIFE_LENGTH } from './event-text.js';
import { HISTORY_MS, type LoadedSandbox } from './load-sandboxes.js';

const TOLD_EVERY = 1_000;
const ENTRIES_PER_CHECKPOINT = 1_000;
/** Rare events are half an hour apart, so that a page of a month is full. */
const RAREST_MS = 1_800_000;

interface Org {
  id: string;
  keyId: string;
}

/** Creates the partition of each month of the history. */
export async function makeMonths(client: Client, until: number): Promise<void> {
  const end = at(until);
  for (let month = startOfMonth(at(until - HISTORY_MS)); month <= end; month = monthAfter(month)) {
    await client.query('select make_event_partition($1)', [month]);
  }
}

/**
 * Loads sealed events, evenly over the history. They bypass the queue, and the log is linked, marked and signed as
 * the sealer does it: `verify` finds no fault.
 */
export async function loadEvents(
  [events, log]: readonly [Client, Client],
  org: Org,
  sandboxes: readonly LoadedSandbox[],
  count: number,
  { keys, until }: { keys: EventKeys; until: number },
  progress: (done: number) => void,
): Promise<void> {
  const months = new Set<string>();
  const checkpoints: Cell[][] = [];
  let link = genesisLink(org.id);
  let end: readonly Cell[] = [];
  // Without triggers: the queue is bypassed, and the organizations exist.
  for (const client of [events, log]) await client.query("set session_replication_role = 'replica'");
  const written = new RowWriter(
    events,
    `events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id, resource_id, leaf, mark)`,
  );
  const linked = new RowWriter(log, 'event_log (org_id, seq, event_id, occurred_at, leaf, unmarked, link)');
  const textOf = eventTexts(org.id, org.keyId);
  const idAt = eventIds();
  for (let index = 0; index < count; index += 1) {
    const millis = Math.floor(until - (count - index) * Math.min(RAREST_MS, HISTORY_MS / count));
    const [seq, id, occurred_at] = [index + 1, idAt(millis), at(millis)];
    const { type, category, leaf, columns } = textOf(
      index,
      id,
      occurred_at,
      sandboxOf(sandboxes, index, count),
    );
    link = linkOf(link, { seq, occurred_at, leaf, unmarked: false });
    const [leafText, mark] = [leaf.toString('hex'), keys.mark(leaf).toString('hex')];
    const full = [
      written.addText(`${org.id}\t${id}\t${occurred_at}\t${columns}\t\\\\x${leafText}\t\\\\x${mark}\n`),
      linked.addText(
        `${org.id}\t${seq}\t${id}\t${occurred_at}\t\\\\x${leafText}\tf\t\\\\x${link.toString('hex')}\n`,
      ),
    ];
    for (const room of full) if (room) await room;
    months.add(`${type} ${category} ${startOfMonth(occurred_at)}`);
    if (seq % TOLD_EVERY === 0) progress(TOLD_EVERY);
    if (seq % ENTRIES_PER_CHECKPOINT !== 0 && seq !== count) continue;
    const signed = signCheckpoint(keys, { org_id: org.id, seq, link, at: occurred_at, marked_from: 1 });
    end = [
      signed.org_id,
      signed.seq,
      signed.link,
      signed.at,
      signed.marked_from,
      signed.key_id,
      signed.signature,
    ];
    checkpoints.push([...end]);
  }
  progress(count % TOLD_EVERY);
  await Promise.all([written.end(), linked.end()]);
  const columns = '(org_id, seq, link, at, marked_from, key_id, signature)';
  await copyRows(events, `event_checkpoints ${columns}`, checkpoints);
  await copyRows(events, `event_chains ${columns}`, [end]);
  await copyRows(
    events,
    'event_months (org_id, event_type, category, month)',
    [...months].map((text) => [org.id, ...text.split(' ')]),
  );
  for (const client of [events, log]) await client.query('reset session_replication_role');
}

/** A sandbox that existed at that time; the newest are the first. */
function sandboxOf(sandboxes: readonly LoadedSandbox[], index: number, count: number): LoadedSandbox {
  const age = Math.floor((index / count) * sandboxes.length);
  return sandboxes[sandboxes.length - 1 - ((Math.floor(index / LIFE_LENGTH) * 7_919) % (age + 1))]!;
}

/** UUIDs of version 7 at rising times: the time, a counter, and a constant. */
function eventIds(): (millis: number) => string {
  const rest = uuidv7().slice(23);
  let count = 0;
  return (millis) => {
    const time = millis.toString(16).padStart(12, '0');
    const low = (count += 1) % 0x1000000;
    const number = low.toString(16).padStart(6, '0');
    return `${time.slice(0, 8)}-${time.slice(8)}-7${number.slice(0, 3)}-8${number.slice(3)}${rest}`;
  };
}

function at(millis: number): string {
  return `${new Date(millis).toISOString().slice(0, -1)}000Z`;
}
