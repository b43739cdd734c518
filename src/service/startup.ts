import type { Logger } from 'pino';
import type { Config } from '../config/options.js';
import type { Resources } from '../lib/resources.js';
import type { Metrics } from '../metrics/open-metrics.js';
import type { Telemetry } from '../telemetry/open-telemetry.js';

export interface ServiceOptions extends Config {
  /** Serves another runtime than before, although sandboxes of the previous one exist. */
  changeRuntime?: boolean;
}

/** The parts that every step of the start uses. */
export interface Startup {
  options: ServiceOptions;
  onStep: (sentence: string) => void;
  log: Logger;
  stopping: AbortSignal;
  draining: AbortSignal;
  resources: Resources;
  metrics: Metrics | undefined;
  telemetry: Telemetry | undefined;
}
