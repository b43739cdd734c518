import type { FastifyReply, FastifyRequest } from 'fastify';
import { makeTransferSlots } from '../../access/transfer-slots.js';
import type { Shared } from '../../context.js';

/** Each list holds up to 50,000 entries in memory; the others hold descriptors and half a MiB. */
export const FILE_SLOTS = {
  list: { total: 8, each: 2 },
  work: { total: 128, each: 32 },
};

type FileSlotKind = keyof typeof FILE_SLOTS;

/** Waits for a slot, as in `makeTransferSlots`. */
export type EnterFiles = (
  kind: FileSlotKind,
  request: FastifyRequest,
  reply: FastifyReply,
) => Promise<AbortSignal>;

export function makeFileSlots(ctx: Shared): EnterFiles {
  const slotsOf = (kind: FileSlotKind) =>
    makeTransferSlots(ctx, {
      ...FILE_SLOTS[kind],
      waiting: { total: 1_000, each: 100 },
      message: 'too many operations on files are under way: try again later',
      retryAfterSecs: 2,
    });
  const slots = { list: slotsOf('list'), work: slotsOf('work') };
  return async (kind, request, reply) => slots[kind](request, reply);
}
