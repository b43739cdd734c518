import { appendFileSync, readFileSync } from 'node:fs';
import type { Address, Pool } from '../../../src/db/pool.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { Orders } from './child.js';
import { whenUp, type OwnDatabase } from './database.js';
import { recordOf } from './engine-journal.js';
import type { Kind, Victim, Victims } from './processes.js';
import type { Dice } from './seeded-random.js';
import type { Chaos } from './faulty-runtime.js';

const LEASE_MS = 600;
const LINGER_MS = 150;
/** docs/failures.md promises it. */
const SERVED_WITHIN_MS = 10_000;
/** A busy machine makes everything slower: it gets the time of this many writes more. */
const SLOWNESS = 5;
/** A single failover may meet a busy machine by chance. The quickest of several counts. */
const SINGLE = 6;

export interface FleetOptions {
  dice: Dice;
  victims: Victims;
  server: OwnDatabase;
  database: { address: Address; pool: Pool };
  /** The directory of the simulated engine. */
  directory: string;
  note: (text: string) => void;
  /** Starts more concurrent requests. */
  press: () => void;
  /** Resolves with the time of the acknowledgement of a write after `since`; both as of `performance.now()`. */
  acknowledged: (since: number) => Promise<number>;
}

/** The processes of the service on one database and one engine, and the faults that they suffer. */
export class Fleet {
  /** The process with the API, and the processes with a worker only. */
  private api: Victim | undefined;
  private workers: Victim[] = [];
  private readonly failovers: { took: number; usual: number }[] = [];
  private apiWorks = false;
  private readonly dice: Dice;
  private readonly clockOffset = BigInt(Date.now()) * 1_000n - process.hrtime.bigint() / 1_000n;

  constructor(private readonly options: FleetOptions) {
    this.dice = options.dice;
  }

  /** The address of the API; undefined while there is none. */
  get url(): string | undefined {
    return this.api && this.api.url !== '' && !this.api.isGone() ? this.api.url : undefined;
  }

  /** The end of each process's log. */
  logs(): string {
    const all = this.api ? [this.api, ...this.workers] : this.workers;
    return all.map((one) => `process ${one.pid}: ${one.output()}`).join('\n');
  }

  async stop(): Promise<void> {
    await this.arrange('api');
    await this.api!.stop();
  }

  async close(): Promise<void> {
    for (const one of [this.api, ...this.workers]) await one?.kill();
  }

  /** Arranges that one process acts on the engine: the one with the API, or one with a worker only. */
  async arrange(actor: Kind): Promise<void> {
    this.workers = this.workers.filter((one) => !one.isGone());
    if (!this.api || this.api.isGone()) await this.startApi(actor === 'api');
    if (actor === 'worker' && this.workers.length === 0) await this.startWorker();
    if (this.apiWorks !== (actor === 'api')) await this.api!.work(actor === 'api');
    this.apiWorks = actor === 'api';
    if (actor === 'api') for (const one of this.workers.splice(0)) await one.stop();
  }

  private async startApi(works: boolean): Promise<void> {
    this.apiWorks = works;
    this.api = this.options.victims.take('api');
    this.options.note(`start the API, process ${this.api.pid}`);
    await this.api.serve(this.orders(works));
  }

  private startWorker(): Promise<void> {
    const worker = this.options.victims.take('worker');
    this.workers.push(worker);
    this.options.note(`start a worker, process ${worker.pid}`);
    return worker.serve(this.orders(true));
  }

  /** Returns before the process is ready: it may be killed earlier. */
  private replaceWorkers(): void {
    if (this.workers.every((one) => one.isGone())) void this.startWorker();
  }

  private orders(works: boolean): Orders {
    const { dice } = this;
    const { database, directory } = this.options;
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
      database: database.address,
      directory,
      seed: dice.seed(),
      chaos,
      works,
      leaseMs: LEASE_MS,
      lingerMs: LINGER_MS,
      clockOffset: String(this.clockOffset),
    };
  }

  async disturb(): Promise<void> {
    const { dice } = this;
    const kill = this.apiWorks ? 'killApi' : 'killWorkers';
    const what = dice.weighted({
      [kill]: 70,
      handOver: 10,
      pause: 15,
      database: this.options.server.kill ? 12 : 0,
      failOver: this.options.server.replication ? 300 : 0,
    });
    await sleep(dice.between(0, 250));
    this.options.note(`now ${what}`);
    if (what === 'killApi') await this.killApi();
    else if (what === 'killWorkers') await this.killWorkers(dice.between(1, 2));
    else if (what === 'handOver') await this.handOver();
    else if (what === 'pause') await this.pause();
    else if (what === 'failOver') await this.failOver();
    else await this.killDatabase();
  }

  /** Kills the acting API process. Its successor is sometimes killed during its start. */
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
      // A standby takes over at once; without one the next process starts from nothing.
      if (dice.chance(0.3)) await Promise.race([this.startWorker(), sleep(dice.between(0, 100))]);
      await this.kill(this.workers.shift()!);
      this.replaceWorkers();
      await sleep(dice.between(0, 200));
    }
  }

  /** Hands over to another process. The old one is sometimes killed while it stops. */
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
    // A killed process does not end cleanly.
    stopping.catch(() => undefined);
    await sleep(this.dice.between(0, 50));
    await this.kill(old!);
  }

  /** Stops a process for longer than its lease. It then resumes unaware, while another may already act. */
  private async pause(): Promise<void> {
    const { dice } = this;
    const victim = this.apiWorks ? this.api! : this.workers[0]!;
    const before = await this.epoch();
    victim.pause();
    this.options.note(`pause ${victim.pid}`);
    if (dice.chance(0.75)) {
      void this.startWorker();
      const deadline = Date.now() + 10 * LEASE_MS;
      while ((await this.epoch()) === before && Date.now() < deadline) await sleep(10);
      // The paused process misses these changes.
      this.options.press();
    } else {
      await sleep(LEASE_MS);
    }
    await sleep(dice.between(0, 400));
    victim.resume();
    this.options.note(`resume ${victim.pid}`);
    await sleep(dice.between(0, 100));
    // Then either its replacements or the paused process are killed.
    const others = this.workers.filter((one) => one !== victim);
    if (victim === this.api || (others.length > 0 && dice.chance(0.6))) {
      for (const one of others) await this.kill(one);
    } else {
      await this.kill(victim);
      this.replaceWorkers();
    }
  }

  /** The fencing token, which changes at each takeover. */
  private async epoch(): Promise<number | undefined> {
    const { rows } = await this.options.database.pool.query<{ epoch: number }>('select epoch from workers');
    return rows[0]?.epoch;
  }

  private async killDatabase(): Promise<void> {
    this.options.server.kill!();
    if (this.dice.chance(0.5)) await this.kill(this.apiWorks ? this.api! : this.workers[0]!);
    await whenUp(() => this.options.database.pool.query('select'));
    if (this.api!.isGone()) await this.startApi(this.apiWorks);
    else if (!this.apiWorks) this.replaceWorkers();
  }

  judgeFailovers(): void {
    if (this.failovers.length === 0) return;
    const times = this.failovers.length === 1 ? SINGLE : 1;
    if (this.failovers.some(({ took, usual }) => took <= times * (SERVED_WITHIN_MS + SLOWNESS * usual)))
      return;
    throw new Error(`each failover took too long: ${JSON.stringify(this.failovers)}`);
  }

  /** Kills the primary and promotes its standby. The processes of the service go on, unless one is killed later. */
  private async failOver(): Promise<void> {
    const { dice } = this;
    const { note, press, acknowledged } = this.options;
    const replication = this.options.server.replication!;
    const served = this.api!.pid;
    const usual = await this.timeWrites();
    await replication.killPrimary();
    note('the primary is killed');
    await sleep(dice.between(0, 500));
    replication.promote();
    const promoted = performance.now();
    const took = (await acknowledged(promoted)) - promoted;
    note(`served ${Math.round(took)} ms after the promotion`);
    console.log(
      `crash-failover: ${Math.round(took)} ms after the promotion; a write took ${Math.round(usual)} ms before`,
    );
    this.failovers.push({ took, usual });
    if (this.api!.isGone() || this.api!.pid !== served) throw new Error(`process ${served} has ended`);
    if (dice.chance(0.6)) {
      await replication.resurrect();
      note('the previous primary runs again');
      press();
      // A new process has not seen the promotion.
      if (dice.chance(0.5)) {
        await this.kill(this.api!);
        await this.startApi(this.apiWorks);
      }
      await acknowledged(performance.now());
      await sleep(dice.between(0, 1_500));
    }
    await replication.rejoin();
    note('the previous primary is the standby');
  }

  /** The time of a write, in milliseconds. The first ones fill the caches of a new process. */
  private async timeWrites(): Promise<number> {
    const first = await this.options.acknowledged(performance.now());
    return (await this.options.acknowledged(performance.now())) - first;
  }

  private async kill(victim: Victim): Promise<void> {
    this.options.note(`kill ${victim.pid}`);
    await victim.kill();
  }

  /** Truncates the last line of the record, as a crash of the machine does. Nothing acted on that line yet. */
  private tearRecord(): void {
    if (this.workers.some((one) => !one.isGone()) || !this.dice.chance(0.2)) return;
    const path = recordOf(this.options.directory);
    const line = path === undefined ? '' : readFileSync(path, 'utf8').trimEnd().split('\n').at(-1)!;
    if (path === undefined || line === '') return;
    appendFileSync(path, line.slice(0, this.dice.between(1, Math.max(line.length - 1, 1))));
  }
}
