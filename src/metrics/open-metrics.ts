import type { Registry } from 'prom-client';
import type { ServiceContext } from '../context.js';
import type { App } from '../http/route.js';
import type { Meters } from '../lib/meters.js';
import { sleep } from '../lib/sleep.js';
import { VERSION } from '../lib/version.js';
import { loadLibrary, type Library } from './library.js';
import { makeMeters } from './make-meters.js';
import { measureProcess } from './measure-process.js';
import { measureState, type StateOptions } from './measure-state.js';
import { observeRequests } from './observe-requests.js';
import { gauge, Published, type Sample } from './samples.js';

/** Less than the ten seconds that Prometheus waits for a scrape, default. */
const PATIENCE_MS = 6_000;

export interface Metrics {
  meters: Meters;
  observe: (app: App) => void;
  /** The exposition for Prometheus. */
  text(ctx: ServiceContext): Promise<string>;
  contentType: string;
}

/** Scrapes within `freshMs` share a measurement. */
type Options = StateOptions & { freshMs: number };

export async function openMetrics(options: Options): Promise<Metrics> {
  const library = await loadLibrary();
  const registry = new library.Registry();
  library.collectDefaultMetrics({ register: registry });
  const state = new LatestState(library, registry, options);
  const own = new Published(library, registry);
  return {
    meters: makeMeters(library, registry),
    observe: observeRequests(library, registry),
    contentType: registry.contentType,
    async text(ctx) {
      await state.refresh(ctx);
      own.replace([
        ...measureProcess(ctx, options.byOrg),
        gauge('sandkeep_build_info', 'The release.', 1, { version: VERSION }),
      ]);
      return registry.metrics();
    },
  };
}

/** The state in the database, at most a few seconds old. Without an answer of the database it has no series. */
class LatestState {
  private readonly published: Published;
  private readonly reached: Published;
  private measuring: Promise<void> | undefined;
  private freshUntil = -Infinity;

  constructor(
    library: Library,
    registry: Registry,
    private readonly options: Options,
  ) {
    this.published = new Published(library, registry);
    this.reached = new Published(library, registry);
  }

  async refresh(ctx: ServiceContext): Promise<void> {
    if (performance.now() < this.freshUntil) return;
    this.measuring ??= this.measure(ctx).finally(() => (this.measuring = undefined));
    const over = new AbortController();
    const answered = await Promise.race([
      this.measuring.then(() => true),
      sleep(PATIENCE_MS, over.signal).then(() => false),
    ]);
    over.abort();
    if (!answered) this.publish([], PATIENCE_MS / 1_000);
  }

  private async measure({ pool, log }: ServiceContext): Promise<void> {
    const began = performance.now();
    let samples: Sample[] = [];
    try {
      samples = await measureState(pool, this.options);
    } catch (error) {
      log.warn({ err: error }, 'metrics without the state in the database');
    }
    this.publish(samples, (performance.now() - began) / 1_000);
    this.freshUntil = performance.now() + this.options.freshMs;
  }

  /** Without samples, the database has not answered. */
  private publish(samples: readonly Sample[], seconds: number): void {
    const isUp = samples.length > 0 ? 1 : 0;
    this.published.replace(samples);
    this.reached.replace([
      gauge('sandkeep_database_up', '1: the database answered this measurement.', isUp),
      gauge('sandkeep_state_measurement_seconds', 'Time that this measurement took.', seconds),
    ]);
  }
}
