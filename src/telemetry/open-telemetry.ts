import { defaultResource, resourceFromAttributes, type Resource } from '@opentelemetry/resources';
import { TracerProvider, type ReadableSpan } from '@opentelemetry/sdk-trace';
import type { Meters } from '../lib/meters.js';
import { parsePairs } from '../lib/pairs.js';
import type { Tracing } from '../lib/tracing.js';
import { newId } from '../lib/uuid.js';
import { VERSION } from '../lib/version.js';
import { endpointsOf, type OtlpOptions } from './endpoints.js';
import { ExportQueue, type ExportOutcome } from './export-queue.js';
import { openLogExporter, openSpanExporter } from './exporters.js';
import { toLogRecords } from './log-records.js';
import { Allowance, LimitedSampler } from './sampler.js';
import { OtelTracing } from './spans.js';

/** Memory: about 1 KB a span, and as much as its line for a log record. */
const MOST_WAITING = 4_096;
const BATCH = 256;
const EVERY_MS = 1_000;
const FLUSH_MS = 3_000;
const LONGEST_LINE = 64 * 1_024;
const LONGEST_ATTRIBUTE = 256;
const DEFAULT_SERVICE = 'sandkeep';

type Signal = 'spans' | 'logs';

/** Reports a signal that the collector does not accept, and one that it accepts again. */
type Report = (signal: Signal, error: Error | undefined) => void;

export interface Telemetry {
  tracing: Tracing | undefined;
  addLine: ((line: string) => void) | undefined;
  /** Calls `report` at the first failure in sequence, and at its end. */
  onChange(report: Report): void;
  /** Sends the rest, within a few seconds. */
  close(this: void): Promise<void>;
}

export async function openTelemetry(options: OtlpOptions, meters: Meters): Promise<Telemetry> {
  const { traces, logs } = endpointsOf(options);
  const resource = resourceOf(options);
  const failing = new Set<Signal>();
  let report: Report = () => undefined;
  const queues: { close(millis: number): Promise<void> }[] = [];
  function makeQueue<Item>(signal: Signal, send: (items: Item[]) => Promise<void>): ExportQueue<Item> {
    const queue = new ExportQueue<Item>({
      most: MOST_WAITING,
      batch: BATCH,
      everyMs: EVERY_MS,
      send,
      count: (outcome: ExportOutcome, items: number) => meters.telemetryExported(signal, outcome, items),
      onSent(error) {
        if (failing.has(signal) === (error !== undefined)) return;
        if (error) failing.add(signal);
        else failing.delete(signal);
        report(signal, error);
      },
    });
    queues.push(queue);
    return queue;
  }
  const spans = traces && makeQueue('spans', await openSpanExporter(options.otlpProtocol, traces));
  const exportLogs = logs && (await openLogExporter(options.otlpProtocol, logs));
  const lines = exportLogs && makeQueue<string>('logs', (items) => exportLogs(toLogRecords(items, resource)));
  return {
    tracing: spans && makeTracing(options, resource, spans),
    addLine:
      lines &&
      ((line) => {
        if (line.length <= LONGEST_LINE) lines.add(line);
        else meters.telemetryExported('logs', 'dropped', 1);
      }),
    onChange: (changed) => (report = changed),
    close: async () => {
      await Promise.all(queues.map((queue) => queue.close(FLUSH_MS)));
    },
  };
}

function makeTracing(options: OtlpOptions, resource: Resource, spans: ExportQueue<ReadableSpan>): Tracing {
  const sampler = new LimitedSampler(
    options.tracesSampler,
    options.tracesSamplerArg,
    new Allowance(options.tracesFromCallers),
  );
  const provider = new TracerProvider({
    resource,
    sampler,
    spanLimits: { attributeValueLengthLimit: LONGEST_ATTRIBUTE },
    spanProcessors: [
      {
        onStart: () => undefined,
        onEnd: (span) => spans.add(span),
        forceFlush: async () => Promise.resolve(),
        shutdown: async () => Promise.resolve(),
      },
    ],
  });
  return new OtelTracing(provider.getTracer('sandkeep', VERSION));
}

function resourceOf({ otelServiceName, otelResourceAttributes }: OtlpOptions): Resource {
  const given = parsePairs(otelResourceAttributes ?? '') ?? {};
  return defaultResource().merge(
    resourceFromAttributes({
      'service.name': DEFAULT_SERVICE,
      'service.version': VERSION,
      'service.instance.id': newId(),
      ...given,
      ...(otelServiceName === undefined ? {} : { 'service.name': otelServiceName }),
    }),
  );
}
