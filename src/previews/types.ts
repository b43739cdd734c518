import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import type { Duplex } from 'node:stream';

/** The sandbox and the port that a host name of previews stands for. */
export interface PreviewHost {
  port: number;
  /** A UUID. The sandbox need not exist. */
  sandboxId: string;
  /** The origin of its pages, as browsers write it: `http://8080-….localhost:8081`. */
  origin: string;
}

/** `outer`: the server in the sandbox gets the host name of the preview; `sandbox`: it gets `localhost:<port>`. */
export type HostForm = 'outer' | 'sandbox';

/** The port that a grant opens. */
export interface PreviewTarget extends PreviewHost {
  orgId: string;
  previewId: string;
  hostForm: HostForm;
  /** The sandbox starts when a request finds it stopped. */
  wakes: boolean;
  /** The stored status of the sandbox. */
  status: string;
}

/** @public */
export type Refusal = 'no_grant' | 'expired' | 'notice';
/**
 * `signal` aborts when the grant is revoked or has expired.
 *
 * @public
 */
export type Judgement = { target: PreviewTarget; signal: AbortSignal } | { refused: Refusal };

export type PreviewRequest = IncomingMessage | Http2ServerRequest;
export type PreviewResponse = ServerResponse | Http2ServerResponse;

/** Decides who may use a preview. */
export interface PreviewAccess {
  /** Judges a request by its headers. A rejection with an ApiError is answered with that error. */
  judge(host: PreviewHost, headers: IncomingHttpHeaders): Promise<Judgement>;
  /** Serves the paths below `RESERVED_PATH`, which never reach a sandbox. */
  serve(host: PreviewHost, request: PreviewRequest, response: PreviewResponse): Promise<void>;
  /** Answers a refused request. */
  refuse(
    host: PreviewHost,
    refused: Refusal,
    request: PreviewRequest,
    response: PreviewResponse,
  ): Promise<void>;
}

/** Starts the sandbox of a request. */
export interface PreviewWaker {
  /**
   * How long the request waits for the start, in milliseconds. Undefined: it is answered by `page` at once, while the
   * sandbox starts.
   */
  patienceOf(request: PreviewRequest): number | undefined;
  /** Resolves when the sandbox runs; rejects with an ApiError otherwise. `until`: on the clock of `performance.now`. */
  wait(
    target: PreviewTarget,
    options: { until: number; signal: AbortSignal; request: PreviewRequest },
  ): Promise<void>;
  /** How long a server has to listen after the start of its running sandbox. On the clock of `performance.now`. */
  listensUntil(target: PreviewTarget): Promise<number>;
  /** Tells a client that the sandbox starts, with 503 and `retry-after`, and begins the start. */
  page(target: PreviewTarget, request: PreviewRequest, response: PreviewResponse): Promise<void>;
}

/** Opens a stream of bytes to a TCP port on the loopback addresses of a sandbox. */
export type OpenPort = (
  place: { orgId: string; sandboxId: string; port: number },
  signal: AbortSignal,
) => Promise<Duplex>;

/** The paths of every preview host that Sandkeep serves itself. */
export const RESERVED_PATH = '/.well-known/sandkeep/';
export const GRANT_COOKIE = '__Host-sandkeep-preview';
export const GRANT_HEADER = 'x-sandkeep-preview';
