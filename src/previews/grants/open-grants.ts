import { getEventListeners, setMaxListeners } from 'node:events';
import type { Context } from '../../context.js';
import { inBatches } from '../../fairness/batches.js';
import { startLoop, type Loop } from '../../lib/loop.js';
import type { PreviewHost, PreviewTarget } from '../types.js';
import { findGrants, findOpen, type GrantRow, type Place } from './queries.js';

/**
 * A grant is looked up again after so many milliseconds. If a notification is lost, a revoked one is still refused
 * within a second.
 */
const FRESH_MS = 900;
const CHECK_EVERY_MS = 500;
/** Lookups share queries, so that made-up tokens cost little. */
const LOOKUPS = { concurrency: 2, maxBatch: 200 };
/** Grants without open requests that are kept for later ones. */
const MOST_KEPT = 10_000;

/** An open preview that this process serves. */
export interface OpenGrant {
  row: GrantRow;
  controller: AbortController;
  /** On the clock of `performance.now`. */
  checkedAt: number;
  /** The changes that may have ended it, so far. */
  changes: number;
  /** Its entries by credential and place. */
  keys: Set<string>;
}

/** A lookup in flight. The state that it finds may be of the time before a change. */
interface Lookup {
  sandboxId: string;
  row: Promise<GrantRow | undefined>;
  isOutdated: boolean;
  /** Keys and organizations that have changed. Those of the grant are not known yet. */
  changedOwners: Set<string>;
}

type Needed = Pick<Context, 'pool' | 'changes' | 'now' | 'log'>;

/** The grants of this process: finds them, remembers them for a moment, and ends their requests when they end. */
export class OpenGrants {
  /** By the id of the preview. */
  private readonly grants = new Map<string, OpenGrant>();
  /** The ids by credential and place. */
  private readonly byCredential = new Map<string, string>();
  /** The lookups in flight, by credential and place: many visitors of one preview cost one. */
  private readonly lookups = new Map<string, Lookup>();
  private readonly find: (place: Place) => Promise<GrantRow | undefined>;
  private readonly unsubscribe: (() => void)[];
  private readonly loop: Loop;

  constructor(private readonly ctx: Needed) {
    const { pool, changes, now, log } = ctx;
    this.find = inBatches(async (places: readonly Place[]) => findGrants(pool, places, now()), LOOKUPS);
    const onSandbox = (id: string | undefined) => this.outdate(id, false);
    const onOwner = (id: string | undefined) => this.outdate(id, true);
    this.unsubscribe = [
      changes.subscribe(undefined, onOwner, 'preview'),
      changes.subscribe(undefined, onSandbox, 'sandbox'),
      changes.subscribe(undefined, onOwner, 'key'),
    ];
    this.loop = startLoop(() => this.check(), {
      intervalMs: CHECK_EVERY_MS,
      maxBackoffMs: CHECK_EVERY_MS,
      onError: (error) => log.warn({ err: error }, 'checking the grants of previews failed'),
    });
  }

  /** The grant of a token or a cookie, or of a public preview (`hash` undefined). `ended`: there was one. */
  async get(
    { sandboxId, port }: PreviewHost,
    hash: Buffer | undefined,
  ): Promise<OpenGrant | 'ended' | undefined> {
    const key = `${sandboxId} ${port} ${hash?.toString('base64') ?? ''}`;
    const known = this.grants.get(this.byCredential.get(key) ?? '');
    if (known && this.isFresh(known)) return known;
    const startedAt = performance.now();
    const lookup = this.lookUp(key, { sandboxId, port, hash });
    const row = await lookup.row;
    if (!row) {
      this.byCredential.delete(key);
      return undefined;
    }
    if (!row.is_open) {
      this.end(row.id);
      this.byCredential.delete(key);
      return 'ended';
    }
    const grant = this.keep(row, isOutdated(lookup, row) ? -Infinity : startedAt);
    this.byCredential.set(key, row.id);
    grant.keys.add(key);
    return grant;
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribe) unsubscribe();
    await this.loop.stop();
  }

  /** A lookup that began before a change is not joined: it may have the state before. */
  private lookUp(key: string, place: Place): Lookup {
    const known = this.lookups.get(key);
    if (known && !known.isOutdated && known.changedOwners.size === 0) return known;
    // The map no longer has it, so it would miss further changes.
    if (known) known.isOutdated = true;
    const row = this.find(place).finally(() => {
      if (this.lookups.get(key) === lookup) this.lookups.delete(key);
    });
    const lookup: Lookup = {
      sandboxId: place.sandboxId,
      row,
      isOutdated: false,
      changedOwners: new Set(),
    };
    this.lookups.set(key, lookup);
    return lookup;
  }

  private isFresh({ row, checkedAt }: OpenGrant): boolean {
    return (
      this.ctx.changes.live && checkedAt + FRESH_MS > performance.now() && row.expires_at > this.ctx.now()
    );
  }

  private keep(row: GrantRow, checkedAt: number): OpenGrant {
    const known = this.grants.get(row.id);
    if (known) {
      known.row = row;
      known.checkedAt = checkedAt;
      return known;
    }
    const controller = new AbortController();
    // Every open request of the preview listens.
    setMaxListeners(0, controller.signal);
    const grant: OpenGrant = { row, controller, checkedAt, changes: 0, keys: new Set() };
    this.grants.set(row.id, grant);
    if (this.grants.size > MOST_KEPT) this.forgetUnused();
    return grant;
  }

  /** Grants with open requests stay: their number is bounded by that of the connections. */
  private forgetUnused(): void {
    for (const [id, grant] of this.grants) if (!isUsed(grant)) this.grants.delete(id);
    for (const [key, id] of this.byCredential) if (!this.grants.has(id)) this.byCredential.delete(key);
  }

  private end(id: string): void {
    const grant = this.grants.get(id);
    if (!grant) return;
    this.grants.delete(id);
    for (const key of grant.keys) this.byCredential.delete(key);
    grant.controller.abort();
  }

  /**
   * `changed`: a sandbox; with `mayOwn` also a key or an organization. Undefined or empty: any. The changes of others
   * cost no query.
   */
  private outdate(changed: string | undefined, mayOwn: boolean): void {
    const isAny = changed === undefined || changed === '';
    for (const lookup of this.lookups.values()) {
      if (isAny || lookup.sandboxId === changed) lookup.isOutdated = true;
      else if (mayOwn) lookup.changedOwners.add(changed);
    }
    for (const grant of this.grants.values()) {
      const { sandbox_id, key_id, org_id } = grant.row;
      const isOf = sandbox_id === changed || (mayOwn && (key_id === changed || org_id === changed));
      if (!isAny && !isOf) continue;
      grant.changes += 1;
      grant.checkedAt = -Infinity;
      if (isUsed(grant)) this.loop.wake();
    }
  }

  /** Ends the requests of ended grants. Without the database only the clock ends them. */
  private async check(): Promise<void> {
    const at = this.ctx.now();
    for (const [id, { row }] of this.grants) if (row.expires_at <= at) this.end(id);
    const now = performance.now();
    const due = [...this.grants].filter(
      ([, grant]) => grant.checkedAt + FRESH_MS - CHECK_EVERY_MS < now && isUsed(grant),
    );
    if (due.length === 0) return;
    const changes = new Map(due.map(([id, grant]) => [id, grant.changes]));
    const open = new Map(
      (await findOpen(this.ctx.pool, [...changes.keys()], at)).map((row) => [row.id, row]),
    );
    for (const [id, before] of changes) {
      const row = open.get(id);
      const grant = this.grants.get(id);
      if (!row) this.end(id);
      else if (grant) this.keep(row, grant.changes === before ? now : -Infinity);
    }
  }
}

function isOutdated({ isOutdated: isOld, changedOwners }: Lookup, row: GrantRow): boolean {
  return isOld || changedOwners.has(row.key_id) || changedOwners.has(row.org_id);
}

function isUsed({ controller }: OpenGrant): boolean {
  return getEventListeners(controller.signal, 'abort').length > 0;
}

export function targetOf(host: PreviewHost, { row }: OpenGrant): PreviewTarget {
  const { org_id: orgId, id: previewId, host_form: hostForm, wakes, status } = row;
  return { ...host, orgId, previewId, hostForm, wakes, status };
}
