import { Type, type Static } from 'typebox';
import { EventActor } from '../../audit/events/schema.js';
import { DateTime, Field, Int64, Named, Nullable, PageOf, Uuid, Words } from '../../http/schema.js';

export const SandboxSession = Named(
  'SandboxSession',
  {
    id: Field(Uuid, 'The id of the session, as in its audit events.'),
    sandbox_id: Field(Uuid, 'The id of the sandbox.'),
    kind: Words(['exec', 'terminal', 'files', 'tcp'], {
      title: 'SandboxSessionKind',
      description: 'A command, a terminal, the file operations of a client, or a TCP connection.',
    }),
    actor: Field(EventActor, 'The caller who opened the session.'),
    user: Field(Nullable(Type.String()), 'The user in the sandbox. Null: the user of the sandbox.'),
    program: Field(
      Nullable(Type.String()),
      'The program, or host and port of a connection. Null for file operations. Arguments are never shown.',
    ),
    argument_count: Int64({ description: 'The number of arguments of the program.' }),
    opened_at: Field(DateTime, 'The time at which the session was opened.'),
    end_requested_at: Field(
      Nullable(DateTime),
      'The time at which a caller asked for its end. Null: nobody has.',
    ),
  },
  'An open session in a sandbox.',
);
export type SandboxSession = Static<typeof SandboxSession>;

export const PaginatedSandboxSession = PageOf('PaginatedSandboxSession', SandboxSession);
