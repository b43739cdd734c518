import { randomBytes } from 'node:crypto';
import { linkSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { link, open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { syncDirectory, syncDirectorySync } from './directories.js';

/** With `replace: false`, publishing fails with EEXIST when the file exists. */
export interface PublishOptions {
  replace: boolean;
}

/**
 * A draft beside a file. `publish` gives it the name of the file in one step, once its content is on the disk. Readers
 * see the previous file or the whole new one, also after a power failure. Only the owner may read it.
 */
export class FileDraft {
  private constructor(
    private readonly path: string,
    private readonly draft: string,
    readonly handle: FileHandle,
  ) {}

  static async open(path: string): Promise<FileDraft> {
    const draft = draftPath(path);
    return new FileDraft(path, draft, await open(draft, 'wx', 0o600));
  }

  async publish({ replace }: PublishOptions): Promise<void> {
    await this.handle.sync();
    await this.handle.close();
    // A link refuses an existing name, which a rename replaces.
    if (replace) await rename(this.draft, this.path);
    else await link(this.draft, this.path);
    await rm(this.draft, { force: true });
    await syncDirectory(dirname(this.path));
  }

  async discard(): Promise<void> {
    await this.handle.close().catch(() => undefined);
    await rm(this.draft, { force: true });
  }
}

export async function writeFileAtomically(
  path: string,
  content: string,
  options: PublishOptions,
): Promise<void> {
  const draft = await FileDraft.open(path);
  try {
    await draft.handle.writeFile(content);
    await draft.publish(options);
  } catch (error) {
    await draft.discard();
    throw error;
  }
}

/** `writeFileAtomically` for the start of a process and for small files that a getter reads. */
export function writeFileAtomicallySync(path: string, content: string, { replace }: PublishOptions): void {
  const draft = draftPath(path);
  try {
    writeFileSync(draft, content, { flag: 'wx', mode: 0o600, flush: true });
    if (replace) renameSync(draft, path);
    else linkSync(draft, path);
  } finally {
    rmSync(draft, { force: true });
  }
  syncDirectorySync(dirname(path));
}

function draftPath(path: string): string {
  return `${path}.${randomBytes(6).toString('hex')}`;
}
