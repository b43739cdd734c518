import { StreamTurns } from '../fairness/stream-turns.js';
import type { FastifyBaseLogger } from 'fastify';
import { setMaxListeners } from 'node:events';
import { ServerResponse, type IncomingMessage } from 'node:http';
import { constants } from 'node:http2';
import type { Socket } from 'node:net';
import { peerOf, proxiesOf, type TrustedProxies } from '../http/client-address.js';
import type { Pace } from '../fairness/pace.js';
import { ApiError } from '../http/errors.js';
import { clientNetworkOf } from '../lib/cidr.js';
import type { Meters } from '../lib/meters.js';
import { answerError, breakOff, onceOver, responseOn } from './answer.js';
import { Bounds, type PreviewLimits } from './bounds.js';
import type { Sender } from './headers.js';
import type { PreviewHosts } from './host.js';
import { endWithGrant } from './proxy/end-with-grant.js';
import type { Exchange } from './proxy/exchange.js';
import { GrpcUpstreams, isGrpc } from './proxy/grpc.js';
import { forwardHttp } from './proxy/http.js';
import { forwardUpgrade, protocolOf, refuseBody, type UpgradeSocket } from './proxy/upgrade.js';
import { Upstreams } from './proxy/upstreams.js';
import { passOn } from './pass-on.js';
import { readHost } from './read-host.js';

import { ServerWaits } from './wake/server-waits.js';
import {
  RESERVED_PATH,
  type OpenPort,
  type PreviewAccess,
  type PreviewHost,
  type PreviewRequest,
  type PreviewResponse,
  type PreviewWaker,
} from './types.js';

export interface ServingParts {
  log: FastifyBaseLogger;
  hosts: PreviewHosts;
  access: PreviewAccess;
  /** Undefined: no request starts a sandbox. */
  waker: PreviewWaker | undefined;
  openPort: OpenPort;
  proxies: TrustedProxies;
  limits: PreviewLimits;
  meters: Meters;
  /** Undefined: streams of organizations have no shares of time. */
  pace?: Pace | undefined;
}

/** The record of a request for metrics and the log. */
interface Visit {
  outcome: 'proxied' | 'upgraded' | 'reserved' | 'no_grant' | 'refused' | 'failed';
  orgId: string | null;
  sandboxId: string | null;
  port: number | null;
  address: string;
  /** From the arrival of the request to its connection in the sandbox, in seconds. */
  addedSecs: number | undefined;
}

/** Serves the requests of the listener. The order: bounds, host, reserved paths, grant, bounds of the sandbox. */
export class Serving {
  private readonly bounds: Bounds;
  private readonly upstreams: Upstreams;
  private readonly grpc: GrpcUpstreams;
  private readonly servers: ServerWaits;
  private readonly turns: StreamTurns;
  /** Connections with a malformed request. They close after its answer. */
  private readonly refused = new WeakSet<object>();

  constructor(private readonly parts: ServingParts) {
    this.bounds = new Bounds(parts.limits);
    this.turns = new StreamTurns(parts.pace);
    this.upstreams = new Upstreams(parts.openPort);
    this.grpc = new GrpcUpstreams(this.upstreams);
    this.servers = new ServerWaits((target) => this.upstreams.connect(target));
  }

  request(request: PreviewRequest, response: PreviewResponse): void {
    // A proxy in front may have taken these bytes for the body of the request that was refused.
    if (this.refused.has(request.socket)) return;
    void this.visitSafely(request, response);
  }

  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const response = responseOn(request, socket);
    if (response) void this.visitSafely(request, response, { socket, head });
    else socket.destroy();
  }

  close(): void {
    this.upstreams.close();
  }

  /** A connection that has gone in the meantime has no address and takes no answer. */
  private async visitSafely(...visit: Parameters<Serving['visit']>): Promise<void> {
    try {
      await this.visit(...visit);
    } catch (error) {
      const [, response] = visit;
      this.parts.log.warn({ err: error }, 'a request to a preview could not be answered');
      breakOff(response);
    }
  }

  private async visit(
    request: PreviewRequest,
    response: PreviewResponse,
    client?: UpgradeSocket,
  ): Promise<void> {
    const began = performance.now();
    response.on('error', () => undefined);
    request.on('error', () => undefined);
    const sender = this.senderOf(request);
    const visit: Visit = {
      outcome: 'refused',
      orgId: null,
      sandboxId: null,
      port: null,
      address: sender.address,
      addedSecs: undefined,
    };
    try {
      const network = clientNetworkOf(sender.address);
      const sent = this.bounds.holdUnsent(network, headBytes(request));
      if (!sent) return this.turnAway(response);
      onceOver(request, response, sent);
      const release = this.bounds.enter(network);
      await this.answer(request, response, { sender, visit, began, client }).finally(release);
    } catch (error) {
      const refusal = error instanceof ApiError ? error : new ApiError('internal_error');
      visit.outcome = refusal.status < 500 ? 'refused' : 'failed';
      if (refusal !== error) this.parts.log.error({ err: error }, 'a request for a preview failed');
      answerError(request, response, refusal);
    }
    this.note(request, response, visit, began);
  }

  /** An answer would need the memory that is not there. Clients of HTTP/2 may repeat a refused stream. */
  private turnAway(response: PreviewResponse): void {
    this.parts.meters.previewAnswered('refused', undefined);
    if (response instanceof ServerResponse) breakOff(response);
    else response.stream.close(constants.NGHTTP2_REFUSED_STREAM);
  }

  private async answer(
    request: PreviewRequest,
    response: PreviewResponse,
    {
      sender,
      visit,
      began,
      client,
    }: { sender: Sender; visit: Visit; began: number; client: UpgradeSocket | undefined },
  ): Promise<void> {
    const { access, hosts, meters } = this.parts;
    const host = this.hostOf(hosts, request);
    visit.port = host.port;
    visit.sandboxId = host.sandboxId;
    if (request.url!.startsWith(RESERVED_PATH)) {
      visit.outcome = 'reserved';
      return access.serve(host, request, response);
    }
    const judged = await access.judge(host, request.headers);
    if ('refused' in judged) {
      visit.outcome = 'no_grant';
      return access.refuse(host, judged.refused, request, response);
    }
    const { target, signal } = judged;
    // Each request of the grant listens to it.
    setMaxListeners(0, signal);
    visit.orgId = target.orgId;
    const protocol = client && protocolOf(request as IncomingMessage);
    if (client) refuseBody(request);
    const kind = protocol === undefined ? 'request' : 'upgraded';
    const release = this.bounds.enterSandbox(target);
    meters.previewOpened(kind, 1);
    const turn = this.turns.of(target.orgId);
    const exchange: Exchange = {
      request,
      response,
      target,
      sender,
      signal,
      moved: (direction, bytes) => {
        meters.previewMoved(direction, bytes);
        return turn(bytes);
      },
      connected: () => (visit.addedSecs ??= (performance.now() - began) / 1_000),
    };
    // A listener of its own marks the grant as used, also while the request is parked behind a combined signal.
    const used = () => undefined;
    signal.addEventListener('abort', used);
    try {
      await passOn(exchange, this.parts.waker, this.servers, () => this.forward(exchange, protocol, client));
      visit.outcome = protocol === undefined ? 'proxied' : 'upgraded';
    } finally {
      signal.removeEventListener('abort', used);
      meters.previewOpened(kind, -1);
      release();
    }
  }

  /** The requests of a pipeline arrive in one turn, so the mark is set before the next one arrives. */
  private hostOf(hosts: PreviewHosts, request: PreviewRequest): PreviewHost {
    try {
      return readHost(hosts, request);
    } catch (error) {
      if (request.httpVersionMajor === 1) this.refused.add(request.socket);
      throw error;
    }
  }

  private forward(
    exchange: Exchange,
    protocol: string | undefined,
    client: UpgradeSocket | undefined,
  ): Promise<void> {
    const { response } = exchange;
    return endWithGrant(exchange, client, () => {
      if (client && protocol !== undefined && response instanceof ServerResponse) {
        return forwardUpgrade({ ...exchange, response }, protocol, client, this.upstreams);
      }
      return isGrpc(exchange) ? this.grpc.forward(exchange) : forwardHttp(exchange, this.upstreams);
    });
  }

  private senderOf(request: PreviewRequest): Sender {
    const message = request as IncomingMessage;
    const { address, isProxied } = this.parts.proxies.clientOf(message);
    if (!isProxied) return { address, via: undefined };
    const list = proxiesOf(request);
    return { address, via: { list, peer: peerOf(message.socket) } };
  }

  /** The path is not in the log: it may hold secrets of the application. */
  private note(
    { method }: PreviewRequest,
    { statusCode: status }: PreviewResponse,
    { outcome, orgId, sandboxId, port, address, addedSecs }: Visit,
    began: number,
  ): void {
    const ms = Math.round((performance.now() - began) * 10) / 10;
    this.parts.meters.previewAnswered(outcome, addedSecs);
    this.parts.log.info(
      { method, status, outcome, ms, orgId, sandboxId, port, address },
      'request to a preview answered',
    );
  }
}

function headBytes({ rawHeaders, url = '' }: PreviewRequest): number {
  return rawHeaders.reduce((sum, text) => sum + text.length, url.length);
}
