import type { TraceContext } from './trace-context.js';

export type SpanKind = 'server' | 'client' | 'internal';
export type Attributes = Record<string, string | number | boolean>;

/** A part of a trace. A span that is not sampled has ids too, so that log lines and other processes can name them. */
export interface Span {
  readonly context: TraceContext;
  /** The header that makes spans of the receiver children of this one. */
  readonly traceparent: string;
  /** A trace has a limit of spans; a span beyond it is not exported. */
  child(name: string, kind: SpanKind, attributes?: Attributes): Span;
  set(attributes: Attributes): void;
  rename(name: string): void;
  /**
   * `errorType`: a value of few, such as the code of an error. `failed`: whether the span counts as failed; default:
   * with an error type.
   */
  end(errorType?: string | null, failed?: boolean): void;
}

export interface Completed {
  name: string;
  kind: SpanKind;
  /** `performance.now()` at the begin and at the end. */
  began: number;
  ended: number;
  attributes: Attributes;
  errorType?: string | undefined;
  /** The span of a request of this installation, which decided whether the trace is sampled. */
  parent?: TraceContext | undefined;
}

/** Makes spans. A service without an exporter makes none. */
export interface Tracing {
  /** The span of a request. The headers are those of the caller, who may be anybody. */
  serve(method: string, headers: Readonly<Record<string, unknown>>): Span;
  /** `parent`: as in `Completed`. */
  start(name: string, kind: SpanKind, attributes: Attributes, parent?: TraceContext): Span;
  record(span: Completed): void;
}
