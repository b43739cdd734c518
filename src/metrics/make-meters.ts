import type { Registry } from 'prom-client';
import type { Meters } from '../lib/meters.js';
import type { Library } from './library.js';

/** An image may have to be pulled. */
const START_SECONDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
const STOP_SECONDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

export function makeMeters({ Counter, Histogram }: Library, registry: Registry): Meters {
  const registers = [registry];
  const starts = new Histogram({
    name: 'sandkeep_run_start_duration_seconds',
    help: 'Time from the admission of a run to its start.',
    buckets: START_SECONDS,
    registers,
  });
  const stops = new Histogram({
    name: 'sandkeep_run_stop_duration_seconds',
    help: 'Time from the request to stop a run to its end.',
    buckets: STOP_SECONDS,
    registers,
  });
  const ends = new Counter({
    name: 'sandkeep_run_ends_total',
    help: 'Ended runs, by reason.',
    labelNames: ['reason'],
    registers,
  });
  const calls = new Histogram({
    name: 'sandkeep_runtime_call_duration_seconds',
    help: 'Calls to the runtime: start, stop, kill, destroy. A failed call is repeated.',
    labelNames: ['call', 'outcome'],
    buckets: START_SECONDS,
    registers,
  });
  const failures = new Counter({
    name: 'sandkeep_loop_failures_total',
    help: 'Failed passes of background loops. Each is repeated.',
    labelNames: ['loop'],
    registers,
  });
  const exports = new Counter({
    name: 'sandkeep_telemetry_items_total',
    help: 'Spans and log lines for the collector, by outcome: exported, dropped, failed.',
    labelNames: ['signal', 'outcome'],
    registers,
  });
  return {
    runStarted: (seconds) => starts.observe(seconds),
    runEnded(reason, seconds) {
      ends.inc({ reason });
      if (seconds !== undefined) stops.observe(seconds);
    },
    runtimeCalled: (call, outcome, seconds) => calls.observe({ call, outcome }, seconds),
    loopFailed: (loop) => failures.inc({ loop }),
    telemetryExported: (signal, outcome, items) => exports.inc({ signal, outcome }, items),
  };
}
