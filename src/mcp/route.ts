import type { FastifyReply, FastifyRequest } from 'fastify';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import { invalidKey } from '../access/authenticate.js';
import { callerOf, type Caller } from '../access/caller.js';
import { onRevocation } from '../access/revocation-watch.js';
import { contextOf } from '../access/request-context.js';
import type { ServiceContext } from '../context.js';
import { clientAddressOf } from '../http/client-address.js';
import { ApiError } from '../http/errors.js';
import { openInnerConnection } from '../http/inner-connection.js';
import { answersToBody, type App } from '../http/route.js';
import { sendJson } from '../http/send-json.js';
import { sendEvents } from '../http/sse.js';
import { whenOver } from '../http/when-over.js';
import { Slots } from '../fairness/slots.js';
import { VERSION } from '../lib/version.js';
import { Api } from './api.js';
import { Calls, type RequestId } from './calls.js';
import { Refusal } from './refusal.js';
import { MCP_BODY_LIMIT, McpAnswer, McpHeaders, McpMessage, McpRefusal } from './schema.js';
import { checkSessionId, newSessionId } from './session-ids.js';

/** How long a client may read nothing. */
const STALL_MS = 60_000;
const SESSION_HEADER = 'mcp-session-id';
/** Logs and traces tell the requests of tools by it. */
const USER_AGENT = `sandkeep-mcp/${VERSION}`;

const response = {
  ...answersToBody(McpAnswer, 'origin_not_allowed', 'mcp_session_not_found'),
  200: {
    description:
      'The answer to a request: JSON, or server-sent events for a call of a tool, whose last event is the answer.',
    content: {
      'application/json': { schema: McpAnswer },
      'text/event-stream': { schema: Type.Unsafe<Readable>({ type: 'string' }) },
    },
  },
  400: { ...McpRefusal, description: '`invalid_request`, `invalid_json`, or an error of JSON-RPC' },
  202: { type: 'null', description: 'The notification is accepted.' },
} as const;

/**
 * The Model Context Protocol over streamable HTTP. A tool is a client of the routes beside this one, with the key and
 * the address of the caller. So every check, limit and event is that of the routes.
 */
export function mcpRoute(app: App, ctx: ServiceContext): void {
  const calls = new Calls(ctx.changes);
  app.addHook('onClose', async () => Promise.resolve(calls.close()));
  const { maxMcpCalls: total, maxMcpCallsOfKey: ofKey } = ctx.settings;
  const ofOrgs = new Slots({ total, each: Math.ceil(total / 2) });
  const ofKeys = new Slots({ total: Infinity, each: ofKey });

  /** Returns the function that releases the slots. */
  function acquire({ orgId, key }: Caller): () => void {
    const slots = [ofOrgs.acquire(orgId), ofKeys.acquire(key?.id ?? orgId)];
    const release = () => {
      for (const slot of slots) slot?.();
    };
    if (slots.every((slot) => slot !== undefined)) return release;
    release();
    const message = 'too many calls of tools are in progress: wait for their results';
    throw new ApiError('rate_limited', message, null, { headers: { 'retry-after': '1' } });
  }

  /** The API as the caller of this request. */
  function apiFor(request: FastifyRequest, signal: AbortSignal): Api {
    const address = clientAddressOf(request);
    const headers = {
      authorization: request.headers.authorization!,
      'user-agent': USER_AGENT,
      'x-request-id': request.id,
      ...(request.span ? { traceparent: request.span.traceparent } : {}),
    };
    return new Api(
      (path, options) =>
        httpRequest({ ...options, path, createConnection: () => openInnerConnection(app.server, address) }),
      headers,
      signal,
    );
  }

  async function notified(request: FastifyRequest, { method, params }: McpMessage): Promise<void> {
    const session = request.headers[SESSION_HEADER];
    const { requestId } = (params ?? {}) as { requestId?: unknown };
    if (method !== 'notifications/cancelled' || session === undefined || !isId(requestId)) return;
    await calls.cancel(contextOf(request), String(session), requestId);
  }

  async function answer(request: FastifyRequest, reply: FastifyReply, message: McpMessage, id: RequestId) {
    const caller = callerOf(request);
    const session = request.headers[SESSION_HEADER];
    const release = acquire(caller);
    const call = session === undefined ? undefined : calls.begin(String(session), id);
    const [left, refused] = [new AbortController(), new AbortController()];
    // A client waits for the result of a stream that was cut off.
    onRevocation(reply, () => refused.abort(revoked()));
    whenOver(reply, () => {
      release();
      call?.over();
      left.abort();
    });
    const over = call ? AbortSignal.any([left.signal, call.cancelled]) : left.signal;
    // Most installations have no such client: the protocol's library is loaded with the first message.
    const { serveMessage } = await import('./serve.js');
    const served = await serveMessage({
      message,
      headers: request.headers,
      isStream: message.method === 'tools/call' && acceptsEvents(request),
      apiFor: (signal) => apiFor(request, signal),
      over,
      refused: refused.signal,
    });
    if (message.method === 'initialize') void reply.header(SESSION_HEADER, newSessionId(ctx.cursors, caller));
    // A cancelled request has no answer.
    if (served === undefined) return accept(reply);
    const { status, answer: answered } = served;
    void reply.code(status);
    return typeof answered === 'string' ? sendJson(reply, answered) : sendEvents(reply, answered, STALL_MS);
  }

  app.post(
    '/mcp',
    {
      bodyLimit: MCP_BODY_LIMIT,
      config: { waits: true },
      onRequest: (request, _reply, done) => {
        refusePages(request);
        done();
      },
      schema: {
        operationId: 'call_mcp',
        scope: 'any',
        summary: 'Send a message of the Model Context Protocol',
        description:
          'The tools for agents, over the streamable HTTP transport of the protocol. A call of a tool needs the scopes of the operations that it uses. A client that leaves ends its call.',
        tags: ['mcp'],
        headers: McpHeaders,
        body: McpMessage,
        response,
      },
    },
    async (request, reply) => {
      // A cookie of the console is no key that a tool could send.
      if (request.headers.authorization === undefined) {
        throw invalidKey({ header: 'Authorization', expected: 'Bearer <API key>' });
      }
      const session = request.headers[SESSION_HEADER];
      if (session !== undefined) checkSessionId(ctx.cursors, callerOf(request), session);
      const message = request.body;
      if (message.id !== undefined) return answer(request, reply, message, message.id);
      await notified(request, message);
      return accept(reply) as never;
    },
  );
}

function revoked(): Refusal {
  const { status, code } = invalidKey();
  return new Refusal(code, 'the key was revoked during the call', {
    status,
    details: null,
    retryAfter: undefined,
  });
}

/**
 * The specification demands the check, against pages whose name is bound to the address of the service. Clients of the
 * protocol are programs, which send no origin, and the service has no pages that call tools.
 */
function refusePages({ headers }: FastifyRequest): void {
  if (headers.origin === undefined) return;
  throw new ApiError(
    'origin_not_allowed',
    'pages of browsers may not call tools: use a client that is a program',
  );
}

function accept(reply: FastifyReply): FastifyReply {
  return reply.code(202).send();
}

function isId(value: unknown): value is RequestId {
  return typeof value === 'string' || Number.isInteger(value);
}

function acceptsEvents({ headers }: { headers: IncomingMessage['headers'] }): boolean {
  return headers.accept?.includes('text/event-stream') === true;
}
