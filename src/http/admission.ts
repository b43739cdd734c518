import type { FastifyRequest } from 'fastify';
import type { Admission, Refusal } from '../fairness/share-entry.js';
import { Shares } from '../fairness/shares.js';
import type { Pace } from '../fairness/pace.js';
import { ApiError } from './errors.js';
import type { App } from './route.js';
import { whenOver } from './when-over.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The handler mostly waits or streams. It begins when it is admitted, and then holds no admission. */
    waits?: boolean;
  }
  interface FastifyRequest {
    admission: RequestAdmission | null;
  }
}

const WRITE_COST = 2;
const BYTES_OF_UNIT = 8 * 1024;
const MILLIS_OF_UNIT = 20;
/** A request takes so long outside of its admission: it is read and its answer is written. */
export const OUTSIDE_MS = 1;
const SMOOTHING = 0.1;
/** The most keys that are kept for a route. */
const MAX_ESTIMATES = 2_000;

export const ADMISSION = {
  running: { total: 12, each: 6 },
  alone: 32,
  waiting: { total: 4_000, each: 500 },
  maxWaitMs: 20_000,
  maxHoldMs: 5_000,
};
const SWEEP_MS = 500;

export class RequestAdmission {
  private admission: Admission | undefined;
  private begun = 0;
  private isOver = false;

  constructor(
    private readonly shares: Shares,
    private readonly key: string,
  ) {}

  take(estimate: number, settle: (error?: ApiError) => void): Admission {
    return this.shares.enter(this.key, estimate, (admission, refusal) => {
      this.admission = admission;
      this.begun = admission.since;
      this.isOver = refusal !== undefined;
      settle(refusal && refused(refusal));
    });
  }

  /** `cost`: without the time. Returns whether the admission has not ended before. */
  end(cost: number): boolean {
    if (this.isOver) return false;
    this.isOver = true;
    this.admission?.release(cost + (performance.now() - this.begun) / MILLIS_OF_UNIT, cost);
    return true;
  }

  async more<T>(cost: number, work: (end: () => void) => Promise<T>): Promise<T> {
    const admission = new RequestAdmission(this.shares, this.key);
    await new Promise<void>((resolve, reject) => {
      admission.take(cost, (error) => (error ? reject(error) : resolve()));
    });
    const end = () => void admission.end(cost);
    try {
      return await work(end);
    } finally {
      end();
    }
  }
}

/**
 * Admits requests when they are complete, in fair shares among the values of `keyOf`. A request holds its admission
 * until its answer is written or begins to stream, or until `endAdmission`.
 */
export function admitFairly(app: App, pace: Pace, keyOf: (request: FastifyRequest) => string): void {
  const shares = new Shares({ ...ADMISSION, pace });
  const sweep = () => {
    if (shares.sweep()) setImmediate(sweep);
  };
  const sweeps = setInterval(sweep, SWEEP_MS).unref();
  app.addHook('onClose', async () => Promise.resolve(clearInterval(sweeps)));
  const estimates = new Estimates();

  app.addHook('preValidation', (request, reply, done) => {
    const { config } = request.routeOptions;
    const key = keyOf(request);
    const own = new RequestAdmission(shares, key);
    if (request.caller) pace.see(key);
    request.admission = own;
    const estimate = Math.max(estimates.of(config, key) ?? 0, costOf(request, 0));
    const admission = own.take(Math.min(estimate, ADMISSION.running.each), (error) => {
      if (!error) pace.charge(key, OUTSIDE_MS);
      if (!error && (config.waits === true || config.upload === true)) endAdmission(request);
      done(error);
    });
    if (!admission.isWaiting) return;
    whenOver(reply, () => {
      if (admission.isWaiting) admission.release(0);
    });
  });
  app.addHook('onSend', (request, _reply, payload, done) => {
    done();
    const cost = costOf(request, bytesOf(payload));
    if (request.admission?.end(cost)) estimates.learn(request.routeOptions.config, keyOf(request), cost);
  });
}

/** The costs of a route, apart for each key: the dear requests of one make those of another no dearer. */
class Estimates {
  private readonly ofRoutes = new WeakMap<object, Map<string, number>>();

  of(route: object, key: string): number | undefined {
    return this.ofRoutes.get(route)?.get(key);
  }

  learn(route: object, key: string, cost: number): void {
    const known = this.ofRoutes.get(route) ?? new Map<string, number>();
    this.ofRoutes.set(route, known);
    if (known.size >= MAX_ESTIMATES) known.clear();
    const before = known.get(key) ?? cost;
    known.set(key, before + (cost - before) * SMOOTHING);
  }
}

/** Call it before a request waits for anything but the processor and the database. */
export function endAdmission(request: FastifyRequest): void {
  request.admission?.end(costOf(request, 0));
}

function costOf(request: FastifyRequest, bytesOut: number): number {
  const { method } = request;
  const base = method === 'GET' || method === 'HEAD' ? 1 : WRITE_COST;
  return base + (bytesIn(request) + bytesOut) / BYTES_OF_UNIT;
}

/** The length of the body that is read at most. Uploads are counted where they are written. */
export function bytesIn({ headers, routeOptions: { config, bodyLimit } }: FastifyRequest): number {
  return config.upload === true ? 0 : Math.min(Number(headers['content-length'] ?? 0), bodyLimit);
}

export function bytesOf(payload: unknown): number {
  return typeof payload === 'string' || Buffer.isBuffer(payload) ? payload.length : 0;
}

function refused(refusal: Refusal): ApiError {
  if (refusal === 'backlog') {
    const message = 'too many requests are in progress: wait for their answers before you send more';
    return new ApiError('rate_limited', message, null, { headers: { 'retry-after': '1' } });
  }
  const message = 'more is asked of the service than it can answer: try again';
  return new ApiError('not_ready', message, null, { headers: { 'retry-after': '2' } });
}
