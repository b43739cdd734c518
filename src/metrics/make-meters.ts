import type { Registry } from 'prom-client';
import type { Meters } from '../lib/meters.js';
import type { Library } from './library.js';

/** An image may have to be pulled. */
const START_SECONDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
const STOP_SECONDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
/** A woken sandbox may have to start first. */
const PREVIEW_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10, 30, 60];

export function makeMeters({ Counter, Gauge, Histogram }: Library, registry: Registry): Meters {
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
  const creates = new Counter({
    name: 'sandkeep_creates_total',
    help: 'Creates with a start, by source: warm, from a pool, or cold.',
    labelNames: ['source'],
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
  const previews = new Counter({
    name: 'sandkeep_preview_requests_total',
    help: 'Requests to previews, by outcome: proxied, upgraded, reserved, no_grant, refused, failed.',
    labelNames: ['outcome'],
    registers,
  });
  const added = new Histogram({
    name: 'sandkeep_preview_connect_duration_seconds',
    help: 'Time from the arrival of a request to a preview to its connection in the sandbox.',
    buckets: PREVIEW_SECONDS,
    registers,
  });
  const moved = new Counter({
    name: 'sandkeep_preview_bytes_total',
    help: 'Bytes of bodies and upgraded connections of previews, by direction: in, to sandboxes, or out.',
    labelNames: ['direction'],
    registers,
  });
  const open = new Gauge({
    name: 'sandkeep_preview_open',
    help: 'Requests to previews in progress, and open upgraded connections, by kind: request, upgraded.',
    labelNames: ['kind'],
    registers,
  });
  const wakes = new Histogram({
    name: 'sandkeep_preview_wake_duration_seconds',
    help: 'Time from the first request to a preview of a sandbox that does not run until it runs, or the requests are refused. All requests that wait for a start are one. The outcome is running, the reason of a refusal, left or failed.',
    labelNames: ['outcome'],
    buckets: START_SECONDS,
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
    sandboxCreated: (source) => creates.inc({ source }),
    runEnded(reason, seconds) {
      ends.inc({ reason });
      if (seconds !== undefined) stops.observe(seconds);
    },
    runtimeCalled: (call, outcome, seconds) => calls.observe({ call, outcome }, seconds),
    loopFailed: (loop) => failures.inc({ loop }),
    previewAnswered(outcome, addedSeconds) {
      previews.inc({ outcome });
      if (addedSeconds !== undefined) added.observe(addedSeconds);
    },
    previewMoved: (direction, bytes) => moved.inc({ direction }, bytes),
    previewOpened: (kind, change) => open.inc({ kind }, change),
    previewWoken: (outcome, seconds) => wakes.observe({ outcome }, seconds),
    telemetryExported: (signal, outcome, items) => exports.inc({ signal, outcome }, items),
  };
}
