import { Type, type Static } from 'typebox';
import { DateTime, Field, Named } from '../../http/schema.js';
import { commandFields } from '../exec/schema.js';
import { DEFAULT_SIZE, LARGEST } from './size.js';

function size(what: string, initial: number) {
  return Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: LARGEST,
      default: initial,
      description: `The ${what} of the terminal. 0, as of a hidden part of a page: the default.`,
    }),
  );
}

export const TerminalRequest = Type.Object(
  {
    cmd: Type.Optional(
      Type.String({ minLength: 1, description: 'The program of the terminal. Default: `/bin/sh`.' }),
    ),
    ...commandFields,
    rows: size('rows', DEFAULT_SIZE.rows),
    cols: size('columns', DEFAULT_SIZE.cols),
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
