import type { ReadableLogRecord } from '@opentelemetry/sdk-logs';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import type { OtlpProtocol } from './choices.js';
import type { Endpoint } from './endpoints.js';

/** Rejects when the collector did not accept the items. */
type Export<Item> = (items: Item[]) => Promise<void>;

interface Exporter<Item> {
  export(items: Item[], done: (result: { code: number; error?: Error }) => void): void;
}

/** The exporters repeat what a collector refuses with 429 or 503, for ten seconds. */
export async function openSpanExporter(
  protocol: OtlpProtocol,
  endpoint: Endpoint,
): Promise<Export<ReadableSpan>> {
  const { OTLPTraceExporter } =
    protocol === 'http/json'
      ? await import('@opentelemetry/exporter-trace-otlp-http')
      : await import('@opentelemetry/exporter-trace-otlp-proto');
  return promised(new OTLPTraceExporter(endpoint));
}

export async function openLogExporter(
  protocol: OtlpProtocol,
  endpoint: Endpoint,
): Promise<Export<ReadableLogRecord>> {
  const { OTLPLogExporter } =
    protocol === 'http/json'
      ? await import('@opentelemetry/exporter-logs-otlp-http')
      : await import('@opentelemetry/exporter-logs-otlp-proto');
  return promised(new OTLPLogExporter(endpoint));
}

function promised<Item>(exporter: Exporter<Item>): Export<Item> {
  return (items) =>
    new Promise((resolve, reject) => {
      exporter.export(items, ({ code, error }) => {
        // `ExportResultCode.SUCCESS` of a package that is not among ours.
        if (code === 0) resolve();
        else reject(error ?? new Error('the collector did not accept it'));
      });
    });
}
