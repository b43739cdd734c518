import { posix } from 'node:path';
import type { GuestFiles } from '../../guest/guest.js';
import { kindOf, statIfThere } from '../../sandboxes/files/entry.js';
import { withFiles, type FileSession } from '../../sandboxes/files/session.js';
import type { Visit } from '../../sandboxes/sessions/entrance.js';
import type { StoredContext } from '../context/read.js';
import { BuildError } from './failure.js';
import { readOwner, type Owner } from './owner.js';
import type { Step } from './plan.js';

type Content = Pick<StoredContext, 'read'>;
type CopyStep = Extract<Step, { type: 'copy' }>;

const CREATE_NEW = {
  read: false,
  write: true,
  append: false,
  create: true,
  truncate: false,
  createNew: true,
  mode: 0o600,
};
const NEW_DIRECTORY = 0o755;

/** Writes entries of the context to the disk of the sandbox. */
export async function copyStep(
  visit: Visit,
  step: CopyStep,
  context: Content,
  signal: AbortSignal,
): Promise<void> {
  await withFiles(visit, async (session) => {
    const owner = await readOwner(session.files, step.owner).catch((error: Error) => {
      throw new BuildError('step_failed', error.message, step.line, { cause: error });
    });
    await copyItems(session, step, context, owner, signal);
  });
}

async function copyItems(
  session: FileSession,
  step: CopyStep,
  context: Content,
  owner: Owner,
  signal: AbortSignal,
): Promise<void> {
  const { files, record } = session;
  const made = new DirectoryMaker(files);
  const target = await targetOf(files, step);
  for (const { entry, to } of step.items) {
    signal.throwIfAborted();
    const path = step.intoDirectory || target.isDirectory ? posix.join(target.path, to) : target.path;
    record.written();
    if (entry.type === 'directory') {
      await made.make(path);
      await files.setStat(path, { ...owner, mode: step.mode ?? entry.mode }, { follow: true });
      continue;
    }
    await made.make(posix.dirname(path));
    await makeWay(files, path, step);
    if (entry.type === 'symlink') {
      await files.symlink(entry.content, path);
      await files.setStat(path, owner, { follow: false });
      continue;
    }
    const handle = await files.open(path, CREATE_NEW);
    let offset = 0n;
    for await (const chunk of context.read(entry)) {
      await files.write(handle, offset, chunk);
      offset += BigInt(chunk.length);
      record.received(chunk.length);
    }
    // The change of the owner removes setuid and setgid.
    await files.setStatOpen(handle, owner);
    await files.setStatOpen(handle, { mode: step.mode ?? entry.mode });
    await files.close(handle);
  }
  // Sources may be empty directories.
  if (step.intoDirectory) await made.make(target.path);
}

async function targetOf(
  files: GuestFiles,
  { target }: CopyStep,
): Promise<{ path: string; isDirectory: boolean }> {
  const found = await statIfThere(files, target, { follow: true });
  return { path: target, isDirectory: found !== undefined && kindOf(found) === 'directory' };
}

/** Removes a file or a link with the path. Throws for a directory. */
async function makeWay(files: GuestFiles, path: string, { line }: CopyStep): Promise<void> {
  const found = await statIfThere(files, path, { follow: false });
  if (!found) return;
  if (kindOf(found) === 'directory') {
    throw new BuildError(
      'step_failed',
      `${path} is a directory of the sandbox: a file cannot replace it, choose another destination or remove it by RUN`,
      line,
    );
  }
  await files.remove(path);
}

/** Remembers the directories that are there. */
class DirectoryMaker {
  private readonly there = new Set<string>(['/']);

  constructor(private readonly files: GuestFiles) {}

  async make(path: string): Promise<void> {
    if (this.there.has(path)) return;
    await this.files.mkdir(path, NEW_DIRECTORY);
    this.there.add(path);
  }
}
