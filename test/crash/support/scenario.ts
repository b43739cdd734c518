import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { operator } from '../../../src/audit/events/actor.js';
import { openEventKeys } from '../../../src/audit/log/signing-key.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import type { Address, Pool } from '../../../src/db/pool.js';
import { createKey } from '../../../src/keys/create.js';
import { sleep } from '../../../src/lib/sleep.js';
import { createOrg } from '../../../src/orgs/create.js';
import { parseQuotas, setQuotas } from '../../../src/quotas/set.js';
import { makeClient } from '../../support/client.js';
import { pollDelay } from '../../support/poll-delay.js';
import { until } from '../../support/polling.js';
import { checkShown } from './check-answers.js';
import { checkAsker } from './check-callers.js';
import { check } from './check-store.js';
import { Counter } from './counter.js';
import type { OwnDatabase } from './database.js';
import { Fleet } from './deployment.js';
import { readJournal } from './engine-journal.js';
import type { Victims } from './processes.js';
import { Dice } from './seeded-random.js';
import { CrashReceiver } from './event-receiver.js';
import { readStore, readUnsettled } from './store-snapshot.js';
import { ask, POOL, type Asker, type Org, type Workload } from './workload.js';

const ORGS = [[], ['max_sandboxes=5', 'max_concurrent_persistent_running=2'], []];
const ASKERS_PER_ORG = 2;
/** Nothing changes for so long. How long the changes take depends on the machine. */
const STANDSTILL_MS = 40_000;
/** For changes that never end. */
const SETTLES_WITHIN_MS = 200_000;
/** The circuit breaker may have opened while the machine was busy, and stays open for a while. */
const DELIVERS_WITHIN_MS = 120_000;
const NOTES_KEPT = 60;
const LEAST_DELAY_MS = 20;

/** A database, a simulated engine, and processes of the service that tests kill. */
export class World {
  private readonly directory = mkdtempSync(join(tmpdir(), 'sandkeep-crash-'));
  private readonly notes: string[] = [];
  private readonly wrong: string[] = [];
  private readonly askers: Asker[] = [];
  private readonly begun = performance.now();
  private readonly fleet: Fleet;
  private readonly counter: Counter;
  /** The work in progress of each caller. */
  private readonly asking = new Map<Asker, Promise<void>>();

  private constructor(
    private readonly dice: Dice,
    private readonly victims: Victims,
    server: OwnDatabase,
    private readonly database: { address: Address; pool: Pool },
    private readonly receiver: CrashReceiver,
  ) {
    const { directory } = this;
    this.fleet = new Fleet({
      dice,
      victims,
      server,
      database,
      directory,
      note: (text) => this.note(text),
      press: () => this.press(),
      acknowledged: (since) => this.counter.acknowledged(since),
    });
    this.counter = new Counter(this.load());
  }

  static async make(dice: Dice, victims: Victims, server: OwnDatabase, name: string): Promise<World> {
    const world = new World(dice, victims, server, await server.create(name), await CrashReceiver.make());
    await world.makeAskers();
    await world.fleet.arrange('api');
    await world.putPools();
    await world.counter.start(world.database.pool);
    return world;
  }

  /** The latest requests and faults, newest last. */
  history(): string {
    return [...this.notes.slice(-NOTES_KEPT), this.fleet.logs()].join('\n');
  }

  /** Callers send requests, a fault occurs, all settles and is compared. Throws the faults found. */
  async round(): Promise<void> {
    const { dice } = this;
    this.askers.push(...this.askers.splice(0, dice.between(0, this.askers.length - 1)));
    await this.fleet.arrange(dice.chance(0.2) ? 'api' : 'worker');
    this.press();
    await this.fleet.disturb();
    await Promise.all(this.asking.values());
    await this.settle();
  }

  /** Two of three organizations have a pool. */
  private async putPools(): Promise<void> {
    for (const { key } of this.oneAskerPerOrg().slice(0, 2)) {
      const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
      const request = { method: 'PUT', headers, body: JSON.stringify(POOL) };
      const { status } = await fetch(`${this.fleet.url}/v1/pools/pool`, request);
      if (status !== 200) throw new Error(`cannot make the pool: the service answered ${status}`);
    }
  }

  /** Deletes everything, and checks that nothing remains and that the webhooks got every event. */
  async end(): Promise<void> {
    await this.fleet.arrange('api');
    this.fleet.judgeFailovers();
    const ids = (await readStore(this.database.pool)).sandboxes;
    const given = [...ids.values()].filter(({ pool_id, warm }) => pool_id !== null && !warm).length;
    const commanded = [...readJournal(this.directory).runs.values()].filter(({ hasHandover }) => hasHandover);
    console.log(`crash: creates took ${given} sandboxes from pools; ${commanded.length} runs got a command`);
    // No fault occurs any more. A busy machine answers 503, which these clients repeat.
    const clients = this.oneAskerPerOrg().map((asker) => {
      const { org, key } = asker;
      return { asker, client: makeClient(this.fleet.url!, { org, key, keyId: '' }) };
    });
    for (const { client } of clients) await client.delete('/v1/pools/pool');
    for (const { asker, client } of clients) {
      for (const { id, org_id, removed, warm } of ids.values()) {
        if (org_id !== asker.org.id || removed || warm) continue;
        const { status } = await client.delete(`/v1/sandboxes/${id}`);
        const outcome = status === 200 ? 'done' : 'refused';
        asker.asked.push({ ...NOTHING, operation: 'delete', target: { id }, outcome });
      }
    }
    await this.settle();
    await until(
      () => this.receiver.missing(this.database.pool),
      (missing) => missing.length === 0,
      DELIVERS_WITHIN_MS,
    );
    const invented = await this.receiver.invented(this.database.pool);
    if (invented.length > 0) throw new Error(invented.join('\n'));
    const held = [...readJournal(this.directory).held.keys()];
    if (held.length > 0) throw new Error(`still held when all were deleted: ${held.join(', ')}`);
    await this.counter.stop();
    await this.fleet.stop();
  }

  async close(): Promise<void> {
    await this.counter.stop();
    await this.fleet.close();
    await this.receiver.close();
    rmSync(this.directory, { recursive: true, force: true });
  }

  private async makeAskers(): Promise<void> {
    const { pool } = this.database;
    for (const [index, quotas] of ORGS.entries()) {
      const made = await createOrg(pool, { name: `Org ${index}`, slug: `org-${index}` }, operator('test'));
      if (quotas.length > 0) await setQuotas(pool, made.id, parseQuotas(quotas), operator('test'));
      await this.receiver.listenTo(pool, made.id, this.directory);
      const org: Org = { ...made, known: [] };
      for (let count = 0; count < ASKERS_PER_ORG; count += 1) {
        const { id: keyId, key } = await createKey(pool, org.id, 'test key', operator('test'));
        this.askers.push({ org, keyId, key, asked: [] });
      }
    }
  }

  private oneAskerPerOrg(): Asker[] {
    return [...new Map(this.askers.map((asker) => [asker.org.id, asker])).values()];
  }

  /** Queues more requests of several callers. */
  private press(): void {
    const { dice } = this;
    for (const asker of this.askers.slice(0, dice.between(2, this.askers.length))) {
      const load = this.load();
      const count = dice.between(2, 6);
      const before = this.asking.get(asker) ?? Promise.resolve();
      const asking = before.then(() => ask(load, asker, count));
      // The end of the round awaits this. Until then a rejection must not count as unhandled.
      asking.catch(() => undefined);
      this.asking.set(asker, asking);
    }
  }

  private load(): Workload {
    return {
      dice: new Dice(this.dice.seed()),
      url: (signal) => this.url(signal),
      note: (text) => this.note(text),
      wrong: (text) => void this.wrong.push(text),
    };
  }

  private async url(signal?: AbortSignal): Promise<string> {
    while (this.fleet.url === undefined) {
      signal?.throwIfAborted();
      await sleep(5);
    }
    return this.fleet.url;
  }

  private note(text: string): void {
    this.notes.push(`${((performance.now() - this.begun) / 1_000).toFixed(3)} ${text}`);
  }

  /** Waits until every sandbox is settled and no fault is found. Throws the faults that stay. */
  private async settle(): Promise<void> {
    const begun = Date.now();
    let seen = { text: '', at: begun };
    for (;;) {
      const wrong = await this.look();
      this.wrong.push(...this.victims.fallen.splice(0));
      const text = [...this.wrong, ...wrong].join('\n');
      if (text === '') return;
      const at = Date.now();
      if (text !== seen.text) seen = { text, at };
      const isOver = at - seen.at > STANDSTILL_MS || at - begun > SETTLES_WITHIN_MS;
      if (isOver || this.wrong.length > 0) throw new Error(text);
      await sleep(pollDelay(at - begun, LEAST_DELAY_MS));
    }
  }

  private async look(): Promise<string[]> {
    const { pool } = this.database;
    const unsettled = await readUnsettled(pool);
    if (unsettled.length > 0) return unsettled;
    const journal = readJournal(this.directory);
    const store = await readStore(pool);
    const wrong = [...check(journal, store), ...this.askers.flatMap((asker) => checkAsker(asker, store))];
    if (wrong.length > 0) return wrong;
    for (const asker of this.oneAskerPerOrg()) {
      wrong.push(...(await checkShown(this.fleet.url!, asker, journal, store)));
    }
    return wrong.length > 0 ? wrong : this.checkLogs();
  }

  /** The log of each organization has each event once, in a valid order. */
  private async checkLogs(): Promise<string[]> {
    const trusted = { keys: openEventKeys({ file: join(this.directory, 'event-keys') })().known };
    const wrong: string[] = [];
    for (const { org } of this.oneAskerPerOrg()) {
      const verdict = await verifyStore(this.database.pool, org.id, trusted);
      if (verdict.wrong !== null) wrong.push(`the event log of ${org.slug}: ${verdict.wrong}`);
      if (verdict.unsealed > 0) wrong.push(`${verdict.unsealed} events of ${org.slug} are not in the log`);
    }
    return wrong;
  }
}

const NOTHING: Omit<Asker['asked'][number], 'operation' | 'target' | 'outcome'> = {
  starts: false,
  waits: false,
  key: undefined,
  late: false,
  id: undefined,
  note: '',
};
