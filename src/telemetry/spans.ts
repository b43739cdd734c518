import {
  createTraceState,
  ROOT_CONTEXT,
  SpanKind as OtelKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Context,
  type Span as OtelSpan,
  type Tracer,
} from '@opentelemetry/api';
import {
  formatTraceparent,
  parseTraceparent,
  parseTracestate,
  type TraceContext,
} from '../lib/trace-context.js';
import type { Attributes, Completed, Span, SpanKind, Tracing } from '../lib/tracing.js';

const MOST_SPANS_OF_REQUEST = 200;

const KINDS: Record<SpanKind, OtelKind> = {
  server: OtelKind.SERVER,
  client: OtelKind.CLIENT,
  internal: OtelKind.INTERNAL,
};

export class OtelTracing implements Tracing {
  constructor(private readonly tracer: Tracer) {}

  serve(method: string, headers: Readonly<Record<string, unknown>>): Span {
    const caller = parseTraceparent(headers['traceparent']);
    const context = caller
      ? contextOf(caller, { isRemote: true, state: headers['tracestate'] })
      : ROOT_CONTEXT;
    return this.begin(method, 'server', {}, context);
  }

  start(name: string, kind: SpanKind, attributes: Attributes, parent?: TraceContext): Span {
    return this.begin(name, kind, attributes, parent ? contextOf(parent) : ROOT_CONTEXT);
  }

  record({ name, kind, began, ended, attributes, errorType, parent }: Completed): void {
    const startTime = performance.timeOrigin + began;
    const options = { kind: KINDS[kind], attributes, startTime };
    const span = this.tracer.startSpan(name, options, parent ? contextOf(parent) : ROOT_CONTEXT);
    if (errorType !== undefined) fail(span, errorType, true);
    span.end(performance.timeOrigin + ended);
  }

  private begin(name: string, kind: SpanKind, attributes: Attributes, context: Context): Span {
    const span = this.tracer.startSpan(name, { kind: KINDS[kind], attributes }, context);
    return new LiveSpan(this.tracer, span, context, { left: MOST_SPANS_OF_REQUEST });
  }
}

class LiveSpan implements Span {
  readonly context: TraceContext;

  constructor(
    private readonly tracer: Tracer,
    private readonly span: OtelSpan,
    private readonly parent: Context,
    private readonly budget: { left: number },
  ) {
    const { traceId, spanId, traceFlags } = span.spanContext();
    this.context = { traceId, spanId, sampled: (traceFlags & TraceFlags.SAMPLED) !== 0 };
  }

  get traceparent(): string {
    return formatTraceparent(this.context);
  }

  child(name: string, kind: SpanKind, attributes: Attributes = {}): Span {
    const { context, tracer, budget } = this;
    if (!context.sampled || budget.left <= 0) return new UnrecordedSpan(context);
    budget.left -= 1;
    const parent = trace.setSpan(this.parent, this.span);
    return new LiveSpan(
      tracer,
      tracer.startSpan(name, { kind: KINDS[kind], attributes }, parent),
      parent,
      budget,
    );
  }

  set(attributes: Attributes): void {
    this.span.setAttributes(attributes);
  }

  rename(name: string): void {
    this.span.updateName(name);
  }

  end(errorType: string | null = null, failed = errorType !== null): void {
    if (errorType !== null) fail(this.span, errorType, failed);
    this.span.end();
  }
}

/** Its children and receivers belong to the nearest span that is recorded. */
class UnrecordedSpan implements Span {
  constructor(readonly context: TraceContext) {}

  get traceparent(): string {
    return formatTraceparent(this.context);
  }

  child(): Span {
    return this;
  }

  set(): void {}

  rename(): void {}

  end(): void {}
}

function fail(span: OtelSpan, errorType: string, failed: boolean): void {
  span.setAttribute('error.type', errorType);
  if (failed) span.setStatus({ code: SpanStatusCode.ERROR });
}

function contextOf(
  { traceId, spanId, sampled }: TraceContext,
  { isRemote = false, state }: { isRemote?: boolean; state?: unknown } = {},
): Context {
  const members = parseTracestate(state);
  return trace.setSpanContext(ROOT_CONTEXT, {
    traceId,
    spanId,
    isRemote,
    traceFlags: sampled ? TraceFlags.SAMPLED : TraceFlags.NONE,
    ...(members === undefined ? {} : { traceState: createTraceState(members) }),
  });
}
