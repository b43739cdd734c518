import type { FastifyReply, FastifyRequest } from 'fastify';
import type { IncomingMessage } from 'node:http';
import { ApiError } from '../http/errors.js';
import { continueBody } from '../http/expect.js';
import { readJson } from '../http/read-json.js';
import type { App } from '../http/route.js';
import { BODY_LIMIT } from '../http/server.js';
import { whenOver } from '../http/when-over.js';
import { Slots } from '../fairness/slots.js';
import { callerOf } from './caller.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    byteLists?: boolean;
  }
}

const MIB = 1024 * 1024;

/** The bytes of JSON bodies in memory, until their answers end. */
export const BODY_MEMORY = { total: 96 * MIB, ofOrg: 32 * MIB, ofKey: 16 * MIB };

interface Body {
  orgId: string;
  keyId: string;
  /** The declared length, or what has arrived if that is more. */
  bytes: number;
  limit: number;
}

/** Reads the bodies of callers. A body counts with its declared length, so that admitted ones can finish. */
export function acceptBodies(app: App, { total, ofOrg, ofKey } = BODY_MEMORY): void {
  const orgs = new Slots({ total, each: ofOrg, base: BODY_LIMIT });
  const keys = new Slots({ total: Infinity, each: ofKey, base: BODY_LIMIT });
  const bodies = new WeakMap<IncomingMessage, Body>();

  function add(body: Body, bytes: number): void {
    body.bytes += bytes;
    orgs.add(body.orgId, bytes);
    keys.add(body.keyId, bytes);
  }

  function hold(body: Body, more: number): void {
    if (body.bytes + more > body.limit) {
      throw new ApiError('payload_too_large', undefined, { limit_bytes: body.limit });
    }
    add(body, more);
    if (!orgs.isOver(body.orgId) && !keys.isOver(body.keyId)) return;
    add(body, -more);
    throw new ApiError('rate_limited', 'too many bytes of bodies are in progress: try again', null, {
      headers: { 'retry-after': '1' },
    });
  }

  function admit(request: FastifyRequest, reply: FastifyReply): void {
    const { raw, headers, routeOptions } = request;
    const { orgId, key } = callerOf(request);
    const body = { orgId, keyId: key?.id ?? orgId, bytes: 0, limit: routeOptions.bodyLimit };
    bodies.set(raw, body);
    hold(body, Number(headers['content-length'] ?? 0));
    whenOver(reply, () => add(body, -body.bytes));
  }

  app.addHook('preParsing', (request, reply, _payload, done) => {
    const { raw, headers } = request;
    if (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined) return done();
    if (request.routeOptions.config.upload !== true) {
      if (headers['content-encoding'] !== undefined) {
        throw new ApiError('unsupported_media_type', 'the body must not be compressed');
      }
      admit(request, reply);
    }
    continueBody(raw);
    done();
  });
  app.addContentTypeParser('application/json', (request, payload, done) => {
    const body = bodies.get(request.raw)!;
    const arrived = (bytes: number) => {
      if (bytes > body.bytes) hold(body, bytes - body.bytes);
    };
    readJson(payload, { arrived, byteLists: request.routeOptions.config.byteLists === true }, done);
  });
}
