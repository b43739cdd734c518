import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import { Type, type TObject, type TProperties } from 'typebox';
import { ApiError } from './errors.js';
import { ignoredFields, type IgnoredField } from './ignored-fields.js';
import { handlingOf } from './prefer.js';
import type { App } from './route.js';
import { Named } from './schema.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** The warnings of its answer; null on routes that give none. */
    warnings: readonly IgnoredField[] | null;
  }
}

const Warning = Named(
  'Warning',
  {
    field: Type.String({ description: 'The path of the field, such as `resources.cpus`.' }),
    message: Type.String({ description: 'For people.' }),
    nearest: Type.Optional(Type.String({ description: 'The known field that was probably meant.' })),
  },
  'A field of the request that was ignored.',
);

const Warnings = Type.Array(Warning, {
  description: 'The fields of the request that were ignored, 50 at most. Absent when there are none.',
});

const PREFER = Type.String({
  description:
    '`handling=strict` refuses a request with a field that would be ignored: 400 `invalid_request`, and `details.field` names it.',
});

const METHODS = new Set(['POST', 'PATCH', 'PUT']);

/**
 * Adds warnings of ignored fields to every write that is registered later; `Prefer: handling=strict` refuses them.
 * Unknown fields that would restrict or give something are always refused.
 */
export function warnOfIgnoredFields(app: App): void {
  const written = new WeakMap<object, TObject>();
  app.decorateRequest('warnings', null);
  app.addHook('onRoute', (route) => {
    const schema = route.schema;
    const answer = (schema?.response as Record<number, TObject | undefined> | undefined)?.[200];
    if (!schema || schema.hide || !METHODS.has(String(route.method)) || !answer?.properties) return;
    const body = (schema.body ?? Type.Object({})) as {
      properties?: TProperties;
      additionalProperties?: unknown;
    };
    // A file has no fields, and a closed schema refuses unknown ones.
    if (!body.properties || body.additionalProperties === false) return;
    const documented = written.get(answer) ?? withWarningsSchema(answer);
    written.set(answer, documented);
    schema.response = { ...(schema.response as object), 200: documented };
    const headers = (schema.headers as TObject | undefined)?.properties ?? {};
    schema.headers = Type.Object({ ...headers, Prefer: Type.Optional(PREFER) });
    addHooks(route, body);
  });
}

function addHooks(route: RouteOptions, body: object): void {
  route.preHandler = (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) => {
    const { ignored: warnings, refused } = ignoredFields(body, request.body);
    request.warnings = warnings;
    const handling = handlingOf(request.headers['prefer']);
    if (handling !== undefined) void reply.header('preference-applied', `handling=${handling}`);
    const reason = refused ?? (handling === 'strict' ? warnings[0] : undefined);
    done(reason && refusal(reason, warnings));
  };
  route.preSerialization = (request: FastifyRequest, reply: FastifyReply, payload, done) => {
    done(null, reply.statusCode === 200 ? withWarnings(payload, request.warnings ?? []) : payload);
  };
}

/**
 * Adds the warnings to an answer, as it is sent and stored: first, because a long answer hides its end. A stored answer
 * has its own.
 */
export function withWarnings<T>(answer: T, warnings: readonly IgnoredField[]): T {
  return warnings.length === 0 ? answer : { warnings, ...answer };
}

function refusal({ field, message, nearest }: IgnoredField, warnings: readonly IgnoredField[]): ApiError {
  return new ApiError('invalid_request', message, { field, ...(nearest ? { nearest } : {}), warnings });
}

function withWarningsSchema(answer: TObject): TObject {
  const { title, description } = answer as { title?: string; description?: string };
  return Type.Object(
    { warnings: Type.Optional(Warnings), ...answer.properties },
    {
      ...(title === undefined ? {} : { title: `Written${title}` }),
      ...(description === undefined ? {} : { description }),
    },
  );
}
