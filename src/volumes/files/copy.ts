import { copyFile } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { at } from '../storage/guest-path.js';
import { openFile } from './entry.js';
import { refusing } from './errors.js';
import { place } from './incoming.js';
import type { TransferRequest } from './schema.js';
import { writable, type Target } from './volume.js';

/** Copies a file, with its permissions, making the directories the copy is in and replacing a file that is there. */
export async function copy(
  ctx: Context,
  target: Target,
  { from, to }: TransferRequest,
): Promise<{ message: string }> {
  await writable(ctx, target);
  return refusing(async () => {
    const { file: source, stats } = await openFile(ctx, target, from);
    try {
      // Between opened files: what their names lead to by now does not matter.
      await place(ctx, target, to, (file) => copyFile(at(source), at(file)), stats);
    } finally {
      await source.close();
    }
    return { message: 'the file is copied' };
  });
}
