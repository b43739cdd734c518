import { copyFile } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { fdPath } from '../storage/guest-path.js';
import { openFile } from './entry.js';
import { replaceFile } from './replace-file.js';
import type { TransferRequest } from './schema.js';
import { findWritableVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

export async function copy(
  ctx: Context,
  target: VolumeTarget,
  { from, to }: TransferRequest,
): Promise<{ message: string }> {
  await findWritableVolume(ctx, target);
  return translateErrors(async () => {
    const { file: source, stats } = await openFile(ctx, target, from);
    try {
      // Between open files, so renames meanwhile do not matter.
      await replaceFile(ctx, target, to, (file) => copyFile(fdPath(source), fdPath(file)), stats);
    } finally {
      await source.close();
    }
    return { message: 'the file is copied' };
  });
}
