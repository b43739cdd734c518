import { Type, type Static } from 'typebox';
import { DateTime, Field, Named } from '../../http/schema.js';
import { commandFields } from '../exec/schema.js';

export const MAX_SIZE = 65_535;

function size(what: string, initial: number) {
  return Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: MAX_SIZE,
      default: initial,
      description: `The ${what} of the terminal.`,
    }),
  );
}

export const TerminalRequest = Type.Object(
  {
    cmd: Type.Optional(
      Type.String({ minLength: 1, description: 'The program of the terminal. Default: `/bin/sh`.' }),
    ),
    ...commandFields,
    rows: size('rows', 24),
    cols: size('columns', 80),
  },
  { title: 'TerminalRequest', description: 'The terminal that a ticket opens.', additionalProperties: false },
);
export type TerminalRequest = Static<typeof TerminalRequest>;

export const TerminalTicket = Named(
  'TerminalTicket',
  {
    ticket: Type.String({
      description:
        'The ticket, shown once. The client offers it as the WebSocket subprotocol `ticket.` and this text, after `sandkeep.terminal.v1`.',
    }),
    path: Type.String({ description: 'The address of the WebSocket.' }),
    expires_at: Field(DateTime, 'The time until which the ticket opens one terminal.'),
  },
  'A ticket that opens one terminal.',
);
