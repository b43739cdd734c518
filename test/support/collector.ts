import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import protobuf from 'protobufjs';
import { DEFAULT_CONFIG } from '../../src/config/options.js';
import type { OtlpOptions } from '../../src/telemetry/endpoints.js';

export interface ReceivedSpan {
  traceId: string;
  spanId: string;
  parentSpanId: string;
  name: string;
  /** 1: internal, 2: server, 3: client. */
  kind: number;
  /** 2: failed. */
  status: number;
  traceState: string;
  millis: number;
  attributes: Record<string, unknown>;
  resource: Record<string, unknown>;
}

interface ReceivedLog {
  body: string;
  severity: string;
  traceId: string;
  spanId: string;
  attributes: Record<string, unknown>;
}

/** A collector of OTLP over HTTP, in both forms. */
export interface Collector {
  url: string;
  spans: ReceivedSpan[];
  logs: ReceivedLog[];
  /** The bodies, as JSON, and the headers. */
  texts: string[];
  /** A status, or null for no answer. */
  answer: () => number | null;
  /** The options of a service that exports to it. */
  options(more?: Partial<OtlpOptions>): OtlpOptions;
  close(): Promise<void>;
}

/** The parts of opentelemetry-proto that spans and log records have: names and numbers of the fields. */
const PROTOCOL = protobuf.parse(`
  syntax = "proto3";
  message AnyValue { oneof value {
    string stringValue = 1; bool boolValue = 2; int64 intValue = 3; double doubleValue = 4; ArrayValue arrayValue = 5; } }
  message ArrayValue { repeated AnyValue values = 1; }
  message KeyValue { string key = 1; AnyValue value = 2; }
  message Resource { repeated KeyValue attributes = 1; }
  message Status { string message = 2; int32 code = 3; }
  message Span {
    bytes traceId = 1; bytes spanId = 2; string traceState = 3; bytes parentSpanId = 4; string name = 5; int32 kind = 6;
    fixed64 startTimeUnixNano = 7; fixed64 endTimeUnixNano = 8; repeated KeyValue attributes = 9; Status status = 15; }
  message ScopeSpans { repeated Span spans = 2; }
  message ResourceSpans { Resource resource = 1; repeated ScopeSpans scopeSpans = 2; }
  message Traces { repeated ResourceSpans resourceSpans = 1; }
  message LogRecord {
    fixed64 timeUnixNano = 1; int32 severityNumber = 2; string severityText = 3; AnyValue body = 5;
    repeated KeyValue attributes = 6; bytes traceId = 9; bytes spanId = 10; }
  message ScopeLogs { repeated LogRecord logRecords = 2; }
  message ResourceLogs { Resource resource = 1; repeated ScopeLogs scopeLogs = 2; }
  message Logs { repeated ResourceLogs resourceLogs = 1; }
`).root;

export async function startCollector(): Promise<Collector> {
  const server = createServer((request, response) => {
    const take = async () => {
      const raw = await buffer(request);
      const body = request.headers['content-encoding'] === 'gzip' ? gunzipSync(raw) : raw;
      const status = collector.answer();
      if (status === null) return;
      if (status === 200) {
        const isLogs = request.url === '/v1/logs';
        const content = decode(body, request.headers['content-type'], isLogs ? 'Logs' : 'Traces');
        collector.texts.push(JSON.stringify(content), JSON.stringify(request.headers));
        if (isLogs) collector.logs.push(...logsOf(content));
        else collector.spans.push(...spansOf(content));
      }
      response.writeHead(status, { 'content-type': request.headers['content-type'] }).end();
    };
    take().catch((error: unknown) => response.writeHead(400).end(String(error)));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const collector: Collector = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: [],
    logs: [],
    texts: [],
    answer: () => 200,
    options: (more = {}) => ({ ...DEFAULT_CONFIG, otlpEndpoint: collector.url, ...more }),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return collector;
}

function decode(body: Buffer, type: string | undefined, message: string): any {
  if (type === 'application/json') return JSON.parse(body.toString());
  if (type !== 'application/x-protobuf') throw new Error(`content type ${type}`);
  const known = PROTOCOL.lookupType(message);
  const text = JSON.stringify(known.toObject(known.decode(body), { longs: String, bytes: String }));
  return JSON.parse(text, (key, value) =>
    /^(trace|span|parentSpan)Id$/.test(key) ? Buffer.from(value, 'base64').toString('hex') : value,
  );
}

function spansOf(content: any): ReceivedSpan[] {
  return content.resourceSpans.flatMap(({ resource, scopeSpans }: any) =>
    scopeSpans.flatMap(({ spans }: any) =>
      spans.map((span: any) => ({
        traceId: span.traceId,
        spanId: span.spanId,
        name: span.name,
        kind: span.kind,
        parentSpanId: span.parentSpanId ?? '',
        status: span.status?.code ?? 0,
        traceState: span.traceState ?? '',
        millis: Number(BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)) / 1e6,
        attributes: attributesOf(span.attributes),
        resource: attributesOf(resource.attributes),
      })),
    ),
  );
}

function logsOf(content: any): ReceivedLog[] {
  return content.resourceLogs.flatMap(({ scopeLogs }: any) =>
    scopeLogs.flatMap(({ logRecords }: any) =>
      logRecords.map((record: any) => ({
        body: record.body?.stringValue ?? '',
        severity: record.severityText,
        traceId: record.traceId ?? '',
        spanId: record.spanId ?? '',
        attributes: attributesOf(record.attributes),
      })),
    ),
  );
}

function attributesOf(pairs: any[] = []): Record<string, unknown> {
  return Object.fromEntries(
    pairs.map(({ key, value }) => {
      const { stringValue, boolValue, intValue, doubleValue } = value ?? {};
      const number = intValue ?? doubleValue;
      return [key, stringValue ?? boolValue ?? (number === undefined ? undefined : Number(number))];
    }),
  );
}
