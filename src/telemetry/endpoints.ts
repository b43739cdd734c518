import type { EXPORTER_CHOICES, OtlpProtocol, SamplerName } from './choices.js';
import { parsePairs } from '../lib/pairs.js';

type ExporterChoice = (typeof EXPORTER_CHOICES)[number];

export interface OtlpOptions {
  otlpEndpoint?: string | undefined;
  otlpTracesEndpoint?: string | undefined;
  otlpLogsEndpoint?: string | undefined;
  otlpProtocol: OtlpProtocol;
  otlpHeaders?: string | undefined;
  tracesExporter: ExporterChoice;
  logsExporter: ExporterChoice;
  tracesSampler: SamplerName;
  tracesSamplerArg: number;
  tracesFromCallers: number;
  otelServiceName?: string | undefined;
  otelResourceAttributes?: string | undefined;
  otelSdkDisabled: boolean;
}

export interface Endpoint {
  url: string;
  headers: Record<string, string>;
}

/** The address of each signal that is exported. The general address is a base; one of a signal is used as it is. */
export function endpointsOf(options: OtlpOptions): { traces?: Endpoint; logs?: Endpoint } {
  if (options.otelSdkDisabled) return {};
  const headers = parsePairs(options.otlpHeaders ?? '') ?? {};
  const base = options.otlpEndpoint?.replace(/\/+$/, '');
  const below = (path: string) => (base === undefined || base === '' ? undefined : `${base}${path}`);
  const traces = options.otlpTracesEndpoint || below('/v1/traces');
  const logs = options.otlpLogsEndpoint || below('/v1/logs');
  return {
    ...(traces === undefined || options.tracesExporter === 'none'
      ? {}
      : { traces: { url: traces, headers } }),
    ...(logs === undefined || options.logsExporter === 'none' ? {} : { logs: { url: logs, headers } }),
  };
}

export function isConfigured(options: OtlpOptions): boolean {
  const { traces, logs } = endpointsOf(options);
  return traces !== undefined || logs !== undefined;
}
