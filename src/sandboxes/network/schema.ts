import { Type, type Static } from 'typebox';
import { DateTime, Field, Int64, Named, Nullable, PageOf, Words } from '../../http/schema.js';

export const DeniedConnection = Named(
  'DeniedConnection',
  {
    kind: Words(['name', 'connection', 'request', 'secret'], {
      description:
        'The refusal of a name by the resolver, of a connection, of a request in a connection, or of the place of a secret.',
    }),
    protocol: Words(['dns', 'tcp', 'udp', 'http', 'tls'], { description: 'The protocol of the refusal.' }),
    name: Nullable(Type.String({ description: 'The name that the sandbox asked for. Null: it named none.' })),
    address: Nullable(Type.String({ description: 'The address of the destination. Null for a name.' })),
    port: Nullable(Type.Integer({ format: 'int32', description: 'The port of the destination.' })),
    rule: Nullable(
      Type.String({
        description:
          'The position in the rules of the policy, from 0 on; `default`: no rule was about it; `guard`: closed before every rule. Null: no rule decided it.',
      }),
    ),
    reason: Type.String({ description: 'The reason, for people.' }),
    secret: Nullable(Type.String({ description: 'The variable of the secret, for `secret`.' })),
    count: Int64({ description: 'The number of equal refusals.' }),
    first_at: Field(DateTime, 'The time of the first one.'),
    last_at: Field(DateTime, 'The time of the latest one.'),
  },
  'Equal refusals of the network of a sandbox.',
);
export type DeniedConnection = Static<typeof DeniedConnection>;

export const PaginatedDeniedConnection = PageOf('PaginatedDeniedConnection', DeniedConnection);
