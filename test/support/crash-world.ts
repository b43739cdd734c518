import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Address, Pool } from '../../src/db/pool.js';
import { operator } from '../../src/events/actor.js';
import { createKey } from '../../src/keys/create.js';
import { sleep } from '../../src/lib/sleep.js';
import { createOrg } from '../../src/orgs/create.js';
import { parseQuotas, setQuotas } from '../../src/quotas/set.js';
import { checkShown } from './crash-check-api.js';
import { checkAsker } from './crash-check-askers.js';
import { check } from './crash-check.js';
import type { Orders } from './crash-child.js';
import { whenUp, type OwnDatabase } from './crash-database.js';
import { readJournal } from './crash-journal.js';
import type { Kind, Victim, Victims } from './crash-processes.js';
import { Dice } from './crash-random.js';
import type { Chaos } from './crash-runtime.js';
import { isAtRest, readStore } from './crash-store.js';
import { ask, type Asker, type Org, type Workload } from './crash-workload.js';

const ORGS = [[], ['max_sandboxes=5', 'max_concurrent_persistent_running=2'], []];
const ASKERS_PER_ORG = 2;
const LEASE_MS = 600;
const LINGER_MS = 150;
const SETTLES_WITHIN_MS = 12_000;
const NOTES_KEPT = 60;

/** A database, a simulated engine, and the processes of the service that work on them and are killed. */
export class World {
  private readonly directory = mkdtempSync(join(tmpdir(), 'sandkeep-crash-'));
  private readonly notes: string[] = [];
  private readonly wrong: string[] = [];
  private readonly askers: Asker[] = [];
  private readonly clockOffset = BigInt(Date.now()) * 1_000n - process.hrtime.bigint() / 1_000n;
  private readonly begun = performance.now();
  /** The one with the API, and those with a worker alone. */
  private api: Victim | undefined;
  private workers: Victim[] = [];
  private apiWorks = false;

  private constructor(
    private readonly dice: Dice,
    private readonly victims: Victims,
    private readonly server: OwnDatabase,
    private readonly database: { address: Address; pool: Pool },
  ) {
    mkdirSync(this.directory, { recursive: true });
  }

  static async make(dice: Dice, victims: Victims, server: OwnDatabase, name: string): Promise<World> {
    const world = new World(dice, victims, server, await server.create(name));
    await world.makeAskers();
    return world;
  }

  /** What was asked for and done to it, the latest last. */
  history(): string {
    const logs = [this.api, ...this.workers].map((one) => (one ? `process ${one.pid}: ${one.output()}` : ''));
    return [...this.notes.slice(-NOTES_KEPT), ...logs].join('\n');
  }

  /** Askers ask, something is killed, all comes to rest and is checked. Throws what is wrong. */
  async round(): Promise<void> {
    const { dice } = this;
    this.askers.push(...this.askers.splice(0, dice.between(0, this.askers.length - 1)));
    await this.arrange(dice.chance(0.2) ? 'api' : 'worker');
    const asking = this.askers
      .slice(0, dice.between(2, this.askers.length))
      .map((asker) => ask(this.load(), asker, dice.between(2, 6)));
    // Looked at below; until then a failure must not count as one that nobody looks at.
    for (const one of asking) one.catch(() => undefined);
    await this.disturb();
    await Promise.all(asking);
    await this.settle();
  }

  /** Deletes everything, and sees that nothing is left. */
  async end(): Promise<void> {
    await this.arrange('api');
    const ids = (await readStore(this.database.pool)).sandboxes;
    for (const asker of this.oneAskerPerOrg()) {
      for (const { id, org_id, removed } of ids.values()) {
        if (org_id !== asker.org.id || removed) continue;
        const headers = { authorization: `Bearer ${asker.key}` };
        const { status } = await fetch(`${this.api!.url}/v1/sandboxes/${id}`, { method: 'DELETE', headers });
        const outcome = status === 200 ? 'done' : 'refused';
        asker.asked.push({ ...NOTHING, operation: 'delete', target: { id }, outcome });
      }
    }
    await this.settle();
    const held = [...readJournal(this.directory).held.keys()];
    if (held.length > 0) throw new Error(`still held when all were deleted: ${held.join(', ')}`);
    await this.api!.stop();
  }

  async close(): Promise<void> {
    for (const one of [this.api, ...this.workers]) await one?.kill();
    rmSync(this.directory, { recursive: true, force: true });
  }

  private async makeAskers(): Promise<void> {
    const { pool } = this.database;
    for (const [index, quotas] of ORGS.entries()) {
      const made = await createOrg(pool, { name: `Org ${index}`, slug: `org-${index}` }, operator('test'));
      if (quotas.length > 0) await setQuotas(pool, made.id, parseQuotas(quotas), operator('test'));
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

  private load(): Workload {
    return {
      dice: new Dice(this.dice.seed()),
      url: async () => {
        for (;;) {
          if (this.api && this.api.url !== '' && !this.api.isGone()) return this.api.url;
          await sleep(5);
        }
      },
      note: (text) => this.note(text),
      wrong: (text) => void this.wrong.push(text),
    };
  }

  private note(text: string): void {
    this.notes.push(`${((performance.now() - this.begun) / 1_000).toFixed(3)} ${text}`);
  }

  /** Brings it about that one acts on the engine: the process with the API, or one with a worker alone. */
  private async arrange(actor: Kind): Promise<void> {
    this.workers = this.workers.filter((one) => !one.isGone());
    if (!this.api || this.api.isGone()) await this.startApi(actor === 'api');
    if (actor === 'worker' && this.workers.length === 0) await this.startWorker();
    if (this.apiWorks !== (actor === 'api')) await this.api!.work(actor === 'api');
    this.apiWorks = actor === 'api';
    if (actor === 'api') for (const one of this.workers.splice(0)) await one.stop();
  }

  private async startApi(works: boolean): Promise<void> {
    this.apiWorks = works;
    this.api = this.victims.take('api');
    this.note(`start the API, process ${this.api.pid}`);
    await this.api.serve(this.orders(works));
  }

  private startWorker(): Promise<void> {
    const worker = this.victims.take('worker');
    this.workers.push(worker);
    this.note(`start a worker, process ${worker.pid}`);
    return worker.serve(this.orders(true));
  }

  /** Does not wait: it may be killed before it is ready. */
  private replaceWorkers(): void {
    if (this.workers.every((one) => one.isGone())) void this.startWorker();
  }

  private orders(works: boolean): Orders {
    const { dice, directory } = this;
    const calm = dice.chance(0.4);
    const chaos: Chaos = {
      startMs: dice.oneOf([0, 5, 40, 120]),
      stopMs: dice.oneOf([0, 5, 60]),
      listMs: dice.oneOf([0, 0, 20, 200]),
      refuses: calm ? 0 : 0.1,
      ends: calm ? 0 : 0.3,
      endsWithinMs: dice.oneOf([0, 20, 200]),
      endsUnseen: dice.oneOf([0, 0.3]),
      silent: dice.chance(0.15),
      restartsAfterMs: dice.chance(0.15) ? dice.between(0, 300) : null,
    };
    return {
      ...{ database: this.database.address, directory, seed: dice.seed(), chaos, works },
      ...{ leaseMs: LEASE_MS, lingerMs: LINGER_MS, clockOffset: String(this.clockOffset) },
    };
  }

  private async disturb(): Promise<void> {
    const { dice } = this;
    const kill = this.apiWorks ? 'killApi' : 'killWorkers';
    const what = dice.weighted({ [kill]: 70, handOver: 10, pause: 15, database: this.server.kill ? 12 : 0 });
    await sleep(dice.between(0, 250));
    this.note(`now ${what}`);
    if (what === 'killApi') await this.killApi();
    else if (what === 'killWorkers') await this.killWorkers(dice.between(1, 2));
    else if (what === 'handOver') await this.handOver();
    else if (what === 'pause') await this.pause();
    else await this.killDatabase();
  }

  /** With what it acts on; its successor is sometimes killed while it starts. */
  private async killApi(): Promise<void> {
    const { dice } = this;
    await this.kill(this.api!);
    this.tearRecord();
    const starting = this.startApi(this.apiWorks);
    if (!dice.chance(0.2)) return starting;
    await sleep(dice.between(0, 150));
    await this.kill(this.api!);
    await starting;
    await this.startApi(this.apiWorks);
  }

  private async killWorkers(times: number): Promise<void> {
    const { dice } = this;
    for (let count = 0; count < times; count += 1) {
      // One that stands by takes over at once; without one the next begins from nothing.
      if (dice.chance(0.3)) await Promise.race([this.startWorker(), sleep(dice.between(0, 100))]);
      await this.kill(this.workers.shift()!);
      this.replaceWorkers();
      await sleep(dice.between(0, 200));
    }
  }

  /** In order, or nearly: the one that goes is sometimes killed while it does. */
  private async handOver(): Promise<void> {
    if (this.apiWorks) {
      await this.startWorker();
      this.apiWorks = false;
      await this.api!.work(false);
      return;
    }
    const [old] = this.workers;
    await this.startWorker();
    const stopping = old!.stop();
    if (this.dice.chance(0.5)) return stopping;
    // Killed it does not end well, and need not.
    stopping.catch(() => undefined);
    await sleep(this.dice.between(0, 50));
    await this.kill(old!);
  }

  /** Stopped for longer than its lease: it goes on as if nothing had been, while another may act already. */
  private async pause(): Promise<void> {
    const { dice } = this;
    const victim = this.apiWorks ? this.api! : this.workers[0]!;
    victim.pause();
    if (dice.chance(0.7)) await Promise.race([this.startWorker(), sleep(LEASE_MS)]);
    await sleep(dice.between(LEASE_MS, LEASE_MS * 1.6));
    victim.resume();
    await sleep(dice.between(0, 100));
    // The one that went on without it goes in its turn, or the one that was stopped.
    const others = this.workers.filter((one) => one !== victim);
    if (victim === this.api || (others.length > 0 && dice.chance(0.6))) {
      for (const one of others) await this.kill(one);
    } else {
      await this.kill(victim);
      this.replaceWorkers();
    }
  }

  private async killDatabase(): Promise<void> {
    this.server.kill!();
    if (this.dice.chance(0.5)) await this.kill(this.apiWorks ? this.api! : this.workers[0]!);
    await whenUp(() => this.database.pool.query('select'));
    if (this.api!.isGone()) await this.startApi(this.apiWorks);
    else if (!this.apiWorks) this.replaceWorkers();
  }

  private async kill(victim: Victim): Promise<void> {
    this.note(`kill ${victim.pid}`);
    await victim.kill();
  }

  /** As if the machine had stopped in the middle of a line, which was never acted upon then. */
  private tearRecord(): void {
    if (this.workers.some((one) => !one.isGone()) || !this.dice.chance(0.2)) return;
    const path = join(this.directory, 'simulated.ndjson');
    const line = readFileSync(path, 'utf8').trimEnd().split('\n').at(-1)!;
    appendFileSync(path, line.slice(0, this.dice.between(1, Math.max(line.length - 1, 1))));
  }

  /** Waits until all is at rest or runs, and nothing is wrong. What stays wrong is thrown. */
  private async settle(): Promise<void> {
    const deadline = Date.now() + SETTLES_WITHIN_MS;
    for (;;) {
      const wrong = await this.look();
      this.wrong.push(...this.victims.fallen.splice(0));
      const all = [...this.wrong, ...wrong];
      if (all.length === 0) return;
      if (Date.now() > deadline || this.wrong.length > 0) throw new Error(all.join('\n'));
      await sleep(20);
    }
  }

  private async look(): Promise<string[]> {
    const { pool } = this.database;
    if (!(await isAtRest(pool))) return ['not at rest'];
    const journal = readJournal(this.directory);
    const store = await readStore(pool);
    const wrong = [...check(journal, store), ...this.askers.flatMap((asker) => checkAsker(asker, store))];
    if (wrong.length > 0) return wrong;
    for (const asker of this.oneAskerPerOrg()) {
      wrong.push(...(await checkShown(this.api!.url, asker, journal, store)));
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
