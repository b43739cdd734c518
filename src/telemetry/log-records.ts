import { TraceFlags, type HrTime } from '@opentelemetry/api';
import { SeverityNumber } from '@opentelemetry/api-logs';
import type { Resource } from '@opentelemetry/resources';
import type { ReadableLogRecord } from '@opentelemetry/sdk-logs';

/** The numbers of pino's levels, and those of OpenTelemetry. */
const SEVERITIES: Record<number, readonly [string, SeverityNumber]> = {
  20: ['DEBUG', SeverityNumber.DEBUG],
  30: ['INFO', SeverityNumber.INFO],
  40: ['WARN', SeverityNumber.WARN],
  50: ['ERROR', SeverityNumber.ERROR],
  60: ['FATAL', SeverityNumber.FATAL],
};
const SCOPE = { name: 'sandkeep' };

type Line = Record<string, unknown> & { level?: number; time?: string; msg?: string };

/** Translates lines of the log. A line that is no JSON is left out. */
export function toLogRecords(lines: readonly string[], resource: Resource): ReadableLogRecord[] {
  return lines.flatMap((line) => {
    try {
      return [toLogRecord(JSON.parse(line) as Line, resource)];
    } catch {
      return [];
    }
  });
}

function toLogRecord(line: Line, resource: Resource): ReadableLogRecord {
  const { level = 30, time, msg, traceId, spanId, err, ...fields } = line;
  const at = hrTimeOf(Date.parse(time ?? ''));
  const [severityText, severityNumber] = SEVERITIES[level] ?? ['INFO', SeverityNumber.INFO];
  const isTraced = typeof traceId === 'string' && typeof spanId === 'string';
  return {
    hrTime: at,
    hrTimeObserved: at,
    severityText,
    severityNumber,
    resource,
    instrumentationScope: SCOPE,
    body: msg ?? '',
    ...(isTraced ? { spanContext: { traceId, spanId, traceFlags: TraceFlags.NONE } } : {}),
    attributes: { ...attributesOf(fields), ...exceptionOf(err) },
    droppedAttributesCount: 0,
  };
}

function exceptionOf(error: unknown): ReturnType<typeof attributesOf> {
  if (typeof error !== 'object' || error === null) return {};
  const { type, message, stack, ...more } = error as Record<string, unknown>;
  return {
    ...attributesOf({ 'exception.type': type, 'exception.message': message, 'exception.stacktrace': stack }),
    ...(Object.keys(more).length === 0 ? {} : { 'exception.details': JSON.stringify(more) }),
  };
}

function attributesOf(fields: Record<string, unknown>): Record<string, string | number | boolean> {
  return Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) => {
      if (value === null || value === undefined) return [];
      if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') {
        return [[name, value]];
      }
      return [[name, JSON.stringify(value)]];
    }),
  );
}

function hrTimeOf(millis: number): HrTime {
  const at = Number.isNaN(millis) ? Date.now() : millis;
  return [Math.floor(at / 1_000), (at % 1_000) * 1_000_000];
}
