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
  /** Its entries by credential and place. */
  keys: Set<string>;
}

type Needed = Pick<Context, 'pool' | 'changes' | 'now' | 'log'>;

/** The grants of this process: finds them, remembers them for a moment, and ends their requests when they end. */
export class OpenGrants {
  /** By the id of the preview. */
  private readonly grants = new Map<string, OpenGrant>();
  /** The ids by credential and place. */
  private readonly byCredential = new Map<string, string>();
  /** The lookups in flight, by credential and place: many visitors of one preview cost one. */
  private readonly lookups = new Map<string, Promise<GrantRow | undefined>>();
  private readonly find: (place: Place) => Promise<GrantRow | undefined>;
  private readonly unsubscribe: (() => void)[];
  private readonly loop: Loop;
  /** Every change increments it: a lookup that began earlier may be of the time before. */
  private generation = 0;

  constructor(private readonly ctx: Needed) {
    const { pool, changes, now, log } = ctx;
    this.find = inBatches(async (places: readonly Place[]) => findGrants(pool, places, now()), LOOKUPS);
    const onChange = (sandboxId: string | undefined) => this.outdate(sandboxId);
    const onAny = () => this.outdate(undefined);
    this.unsubscribe = [
      changes.subscribe(undefined, onChange, 'preview'),
      changes.subscribe(undefined, onChange, 'sandbox'),
      changes.subscribe(undefined, onAny, 'key'),
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
    const { generation } = this;
    const startedAt = performance.now();
    const row = await this.lookUp(key, { sandboxId, port, hash });
    if (!row) {
      this.byCredential.delete(key);
      return undefined;
    }
    if (!row.is_open) {
      this.end(row.id);
      this.byCredential.delete(key);
      return 'ended';
    }
    const grant = this.keep(row, generation === this.generation ? startedAt : -Infinity);
    this.byCredential.set(key, row.id);
    grant.keys.add(key);
    return grant;
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribe) unsubscribe();
    await this.loop.stop();
  }

  /** A lookup that began before a change is not joined: it may have the state before. */
  private async lookUp(key: string, place: Place): Promise<GrantRow | undefined> {
    const turn = `${this.generation} ${key}`;
    const known = this.lookups.get(turn);
    if (known) return known;
    const found = this.find(place).finally(() => this.lookups.delete(turn));
    this.lookups.set(turn, found);
    return found;
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
    const grant: OpenGrant = { row, controller, checkedAt, keys: new Set() };
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

  /** `sandboxId`: of the changed previews; of any, if it is undefined or empty. */
  private outdate(sandboxId: string | undefined): void {
    this.generation += 1;
    for (const grant of this.grants.values()) {
      if (sandboxId === undefined || sandboxId === '' || grant.row.sandbox_id === sandboxId) {
        grant.checkedAt = -Infinity;
        if (isUsed(grant)) this.loop.wake();
      }
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
    const { generation } = this;
    const ids = due.map(([id]) => id);
    const open = new Map((await findOpen(this.ctx.pool, ids, at)).map((row) => [row.id, row]));
    for (const id of ids) {
      const row = open.get(id);
      if (!row) this.end(id);
      else if (this.grants.has(id)) this.keep(row, generation === this.generation ? now : -Infinity);
    }
  }
}

function isUsed({ controller }: OpenGrant): boolean {
  return getEventListeners(controller.signal, 'abort').length > 0;
}

export function targetOf(host: PreviewHost, { row }: OpenGrant): PreviewTarget {
  const { org_id: orgId, id: previewId, host_form: hostForm, wakes, status } = row;
  return { ...host, orgId, previewId, hostForm, wakes, status };
}
