const MOST_ORGS = 64;
const MOST_OF_ORG = 1_000;
/** Longer answers are rare, and asked again. */
const LONGEST_ANSWER = 1_232;
const LONGEST_SECS = 86_400;

interface Entry {
  message: Buffer;
  storedAt: number;
  endsAt: number;
}

export interface CachedAnswer {
  message: Buffer;
  ageSecs: number;
}

/**
 * The answers of name servers, for their lifetime. Each organization has its own. The speed of an answer out of a
 * common cache would tell an organization the names that others resolve. Its name servers could put answers into a
 * common one. Equal questions of an organization that are under way share one answer.
 */
export class AnswerCache {
  /** From the organization, then from the question, that was asked the longest time ago. */
  private readonly byOrg = new Map<string, Map<string, Entry>>();
  private readonly underWay = new Map<string, Promise<Buffer | undefined>>();

  constructor(private readonly now: () => number = Date.now) {}

  /** `key`: the question and everything else that decides the answer. */
  get(orgId: string, key: string): CachedAnswer | undefined {
    const entries = this.byOrg.get(orgId);
    const entry = entries?.get(key);
    if (!entries || !entry) return undefined;
    entries.delete(key);
    if (entry.endsAt <= this.now()) return undefined;
    entries.set(key, entry);
    // Rounded up: an end that moves on by parts of a second would change the sets of the kernel at every query.
    return { message: entry.message, ageSecs: Math.ceil((this.now() - entry.storedAt) / 1_000) };
  }

  set(orgId: string, key: string, message: Buffer, ttlSecs: number): void {
    if (ttlSecs <= 0 || message.length > LONGEST_ANSWER) return;
    const entries = this.byOrg.get(orgId) ?? new Map<string, Entry>();
    this.byOrg.delete(orgId);
    this.byOrg.set(orgId, entries);
    const storedAt = this.now();
    const endsAt = storedAt + Math.min(ttlSecs, LONGEST_SECS) * 1_000;
    entries.delete(key);
    entries.set(key, { message, storedAt, endsAt });
    if (entries.size > MOST_OF_ORG) deleteFirst(entries);
    if (this.byOrg.size > MOST_ORGS) deleteFirst(this.byOrg);
  }

  share(orgId: string, key: string, ask: () => Promise<Buffer | undefined>): Promise<Buffer | undefined> {
    const shared = JSON.stringify([orgId, key]);
    const known = this.underWay.get(shared);
    if (known) return known;
    const asked = ask().finally(() => this.underWay.delete(shared));
    this.underWay.set(shared, asked);
    return asked;
  }
}

function deleteFirst(map: Map<string, unknown>): void {
  for (const key of map.keys()) return void map.delete(key);
}
