import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Authentication } from '../../access/authenticate.js';
import { callerOf } from '../../access/caller.js';
import { hashOf } from '../../access/key-secret.js';
import type { ServiceContext } from '../../context.js';
import { Slots } from '../../fairness/slots.js';
import { clientAddressOf } from '../../http/client-address.js';
import { ApiError } from '../../http/errors.js';
import { continueBody } from '../../http/expect.js';
import type { App } from '../../http/route.js';
import { DateTime } from '../../http/schema.js';
import { LONGEST_TOKEN_NAME } from '../../keys/tokens/create.js';
import { clientNetworkOf } from '../../lib/cidr.js';
import { addMillis, microsOf, shortInstant } from '../../lib/instant.js';
import { escapeControls } from '../../lib/escape-controls.js';
import { findUnstorable } from '../../lib/storable-text.js';
import { tooManyAtOnce } from '../sign-in-routes.js';
import { DEVICE_CODE, makeUserCode, shownUserCode } from './codes.js';
import { answerDevice, findDevice } from './confirm.js';
import { insertDeviceSignIn } from './queries.js';
import { POLL_SECS, redeemDeviceCode, type PollProblem } from './redeem.js';

const GRANT_TYPE = 'urn:ietf:params:oauth:grant-type:device_code';
const DEVICE_MS = 10 * 60_000;
const BODY_LIMIT = 4 * 1_024;
/** Each takes a connection of the database. */
const REQUESTS_UNDER_WAY = { total: 4, each: 2 };
export const MOST_DEVICES = { total: 1_000, each: 20 };
const CODE_URL = '/console/device/codes/:user_code';

const DeviceResponse = Type.Object({
  user_code: Type.String(),
  client: Type.String(),
  network: Type.String(),
  created_at: DateTime,
});
const AnswerRequest = Type.Object({ allow: Type.Boolean() }, { additionalProperties: false });

/** Sign-ins of devices without a browser (RFC 8628): the requests of the device, without a credential. */
export function deviceRoutes(
  app: App,
  ctx: Pick<ServiceContext, 'pool' | 'now' | 'settings'>,
  { countFailure }: Pick<Authentication, 'countFailure'>,
): void {
  const slots = new Slots(REQUESTS_UNDER_WAY);
  app.addHook('preParsing', ({ raw }, _reply, _payload, done) => {
    continueBody(raw);
    done();
  });
  app.addContentTypeParser(
    'application/x-www-form-urlencoded',
    { parseAs: 'string', bodyLimit: BODY_LIMIT },
    (_request, body, done) => done(null, new URLSearchParams(String(body))),
  );
  app.addHook('onSend', (_request, reply, _payload, done) => {
    void reply.header('cache-control', 'no-store');
    done();
  });

  async function inTurn<T>(request: FastifyRequest, work: (network: string) => Promise<T>): Promise<T> {
    const network = clientNetworkOf(clientAddressOf(request));
    const release = slots.acquire(network);
    if (!release) throw tooManyAtOnce('sign-ins of devices');
    try {
      return await work(network);
    } finally {
      release();
    }
  }

  function refuse(reply: FastifyReply, error: PollProblem | 'invalid_request' | 'unsupported_grant_type') {
    return reply.code(400).send({ error });
  }

  app.post<{ Body: unknown }>(
    '/console/device/authorization',
    { bodyLimit: BODY_LIMIT, schema: { hide: true } },
    async (request, reply) => {
      const client = (formOf(request.body).get('client_name') ?? '').trim();
      if (client === '' || client.length > LONGEST_TOKEN_NAME || findUnstorable(client) !== undefined) {
        return refuse(reply, 'invalid_request');
      }
      // Anybody chooses this name, and a member judges by it: no character may reorder or hide a part of it.
      if (escapeControls(client) !== client) return refuse(reply, 'invalid_request');
      const code = DEVICE_CODE.make();
      const userCode = makeUserCode();
      const at = ctx.now();
      const isNoted = await inTurn(request, (network) =>
        insertDeviceSignIn(
          ctx.pool,
          {
            hash: hashOf(code),
            user_code: userCode,
            client,
            network,
            created_at: at,
            expires_at: addMillis(at, DEVICE_MS),
          },
          MOST_DEVICES,
        ),
      );
      if (!isNoted) throw tooManyAtOnce('sign-ins of devices');
      const page = `${baseOf(request, ctx.settings)}/console/device`;
      return reply.send({
        device_code: code,
        user_code: shownUserCode(userCode),
        verification_uri: page,
        verification_uri_complete: `${page}?code=${shownUserCode(userCode)}`,
        expires_in: DEVICE_MS / 1_000,
        interval: POLL_SECS,
      });
    },
  );

  app.post<{ Body: unknown }>(
    '/console/device/token',
    { bodyLimit: BODY_LIMIT, schema: { hide: true } },
    async (request, reply) => {
      const form = formOf(request.body);
      if (form.get('grant_type') !== GRANT_TYPE) return refuse(reply, 'unsupported_grant_type');
      const found = await inTurn(request, () => redeemDeviceCode(ctx, form.get('device_code') ?? ''));
      if (typeof found === 'string') {
        if (found === 'expired_token') countFailure(request);
        return refuse(reply, found);
      }
      const { token, secret } = found;
      return reply.send({
        access_token: secret,
        token_type: 'Bearer',
        expires_in: Number((microsOf(token.expires_at!) - microsOf(token.created_at)) / 1_000_000n),
        scope: token.scopes.join(' '),
        // Beside the fields of the standard.
        token_id: token.id,
        expires_at: shortInstant(token.expires_at!),
      });
    },
  );
}

/** The requests of the member who confirms the code of a device, in a session of the console. */
export function deviceConfirmationRoutes(
  app: App,
  ctx: Pick<ServiceContext, 'pool' | 'now'>,
  { countFailure }: Pick<Authentication, 'countFailure'>,
): void {
  const memberOf = (request: FastifyRequest) => {
    const { member } = callerOf(request);
    if (!member) throw new ApiError('member_required');
    return member;
  };
  /** Guesses of codes count as failed sign-ins. */
  const counted = async <T>(request: FastifyRequest, work: () => Promise<T>): Promise<T> =>
    work().catch((error: unknown) => {
      if (error instanceof ApiError && error.kind === 'device_not_found') countFailure(request);
      throw error;
    });

  app.get<{ Params: { user_code: string } }>(
    CODE_URL,
    { schema: { hide: true, scope: 'any', response: { 200: DeviceResponse } } },
    async (request) => {
      memberOf(request);
      const { user_code, client, network, created_at } = await counted(request, () =>
        findDevice(ctx, request.params.user_code),
      );
      return { user_code: shownUserCode(user_code), client, network, created_at: shortInstant(created_at) };
    },
  );

  app.post(
    CODE_URL,
    {
      schema: {
        hide: true,
        scope: 'any',
        params: Type.Object({ user_code: Type.String() }),
        body: AnswerRequest,
      },
    },
    async (request, reply) => {
      const member = memberOf(request);
      await counted(request, () => answerDevice(ctx, member, request.params.user_code, request.body));
      return reply.code(204).send(null);
    },
  );
}

/** A body of another type is a form without fields. */
function formOf(body: unknown): URLSearchParams {
  return body instanceof URLSearchParams ? body : new URLSearchParams();
}

function baseOf(
  { client }: FastifyRequest,
  { publicUrl, basePath = '' }: Pick<ServiceContext['settings'], 'publicUrl' | 'basePath'>,
): string {
  const address = `${client.isHttps ? 'https' : 'http'}://${client.host ?? 'localhost'}`;
  return `${publicUrl ?? address}${basePath}`;
}
