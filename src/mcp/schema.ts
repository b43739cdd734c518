import { Type, type Static } from 'typebox';
import { ErrorResponse, Named } from '../http/schema.js';

/** A file that a tool writes is in it, as escaped text or base64. */
export const MCP_BODY_LIMIT = 1024 * 1024;
const LONGEST_ID = 256;

export const McpMessage = Named(
  'McpMessage',
  {
    jsonrpc: Type.Literal('2.0', { description: 'The version of JSON-RPC.' }),
    id: Type.Optional(
      Type.Union([Type.String({ maxLength: LONGEST_ID }), Type.Integer()], {
        description: 'The id of a request. Absent: the message is a notification.',
      }),
    ),
    method: Type.String({ minLength: 1, description: 'The method, such as `tools/call`.' }),
    params: Type.Optional(
      Type.Record(Type.String(), Type.Unknown(), { description: 'The parameters of the method.' }),
    ),
  },
  'A request or a notification of the Model Context Protocol. Batches are not supported.',
);
export type McpMessage = Static<typeof McpMessage>;

export const McpAnswer = Named(
  'McpAnswer',
  {
    jsonrpc: Type.Literal('2.0', { description: 'The version of JSON-RPC.' }),
    id: Type.Unsafe<string | number | null>({
      type: ['string', 'integer', 'null'],
      description: 'The id of the request. Null: it could not be read.',
    }),
    result: Type.Optional(
      Type.Record(Type.String(), Type.Unknown(), {
        description: 'The result. The failure of a tool is a result with `isError`.',
      }),
    ),
    error: Type.Optional(
      Type.Object(
        {
          code: Type.Integer({ description: 'The code of JSON-RPC.' }),
          message: Type.String({ description: 'The fault, and what to do.' }),
          data: Type.Optional(Type.Unknown({ description: 'More about the fault.' })),
        },
        { description: 'The fault of a message that is no call of a tool, or names no tool.' },
      ),
    ),
  },
  'The answer to a request of the Model Context Protocol.',
);

/** A message that is not valid, or of a revision of the protocol that the service does not know. */
export const McpRefusal = Type.Union([ErrorResponse, McpAnswer], {
  description: 'An error of the API, or one of JSON-RPC.',
});

export const McpHeaders = Type.Object({
  'mcp-session-id': Type.Optional(
    Type.String({
      description:
        'The session that the answer to `initialize` named in the same header. A cancellation needs it. Other messages may leave it out.',
    }),
  ),
  'mcp-protocol-version': Type.Optional(
    Type.String({ description: 'The version of the protocol that `initialize` agreed on.' }),
  ),
});
