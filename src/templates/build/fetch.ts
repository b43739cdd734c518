import { READ_ONLY, type GuestFiles } from '../../guest/guest.js';
import { ApiError } from '../../http/errors.js';
import { withFiles } from '../../sandboxes/files/session.js';
import type { Visit } from '../../sandboxes/sessions/entrance.js';
import type { Spool } from '../../snapshots/archives/spool.js';
import type { StoredContext } from '../context/read.js';
import { BuildError } from './failure.js';
import type { CopyBudget, Step } from './plan.js';
import { planCopy, type CopyItem } from './plan-copy.js';
import type { Turn } from './turns.js';
import { SourceWalk } from './walk.js';

const GIB = 1024 ** 3;
/** The bytes that all copies of a stage from other disks have. The disk of the service has them meanwhile. */
export const MOST_FETCHED_BYTES = 4 * GIB;
/** The paths and links of all copies of a build are in memory, where a walk alone has fewer. */
export const MOST_FETCHED_CHARS = 32 * 1024 * 1024;
const PIECE_BYTES = 256 * 1024;
const PLACE = { name: 'the disk that COPY takes it from', advice: 'check the path and the stage' };

type CopyFromStep = Extract<Step, { type: 'copy-from' }>;

/** The files of a COPY from another disk. */
export interface Fetched {
  items: CopyItem[];
  intoDirectory: boolean;
}

interface FetchOptions {
  spool: Spool;
  budget: CopyBudget;
  turn: Turn;
  signal: AbortSignal;
}

/** Reads the files that an instruction copies into the spool. Throws BuildError or DockerfileError. */
export async function fetchFiles(
  visit: Visit,
  { line, paths, destination, source }: CopyFromStep,
  { spool, budget, turn, signal }: FetchOptions,
): Promise<Fetched> {
  return withFiles(visit, async ({ files, record }) => {
    const walk = new SourceWalk(files, signal, turn);
    for (const path of paths) await explained(async () => walk.add(path));
    const copy = { line, keyword: 'COPY' as const, sources: paths, target: destination, source };
    const planned = await planCopy(copy, walk.entries, budget, turn, PLACE);
    for (const { entry, to } of planned.items)
      budget.chars += entry.path.length + entry.content.length + to.length;
    if (budget.chars > MOST_FETCHED_CHARS)
      throw new BuildError(
        'step_failed',
        'the copies of a build have too many long paths or links: copy less, or pack them into one file by RUN',
      );
    const wanted = new Set(planned.items.map(({ entry }) => entry).filter(({ type }) => type === 'file'));
    // A file with holes may have any size: it is refused before its zeros are read.
    checkSize(spool.length + [...wanted].reduce((sum, { size }) => sum + size, 0));
    for (const entry of wanted) {
      signal.throwIfAborted();
      entry.position = spool.length;
      entry.size = await readFile(files, walk.realPathOf(entry), spool);
      record.sent(entry.size);
    }
    return planned;
  });
}

/** The content of entries that were fetched. */
export function contentOf(spool: Spool): Pick<StoredContext, 'read'> {
  return {
    async *read({ position, size }) {
      for (let at = position; at < position + size;) {
        const buffer = Buffer.allocUnsafe(Math.min(PIECE_BYTES, position + size - at));
        const { bytesRead } = await spool.handle.read(buffer, 0, buffer.length, at);
        if (bytesRead === 0) throw new Error('the files of a stage are incomplete');
        yield buffer.subarray(0, bytesRead);
        at += bytesRead;
      }
    },
  };
}

function checkSize(bytes: number): void {
  if (bytes <= MOST_FETCHED_BYTES) return;
  throw new BuildError(
    'step_failed',
    `the copies of a stage have more than ${MOST_FETCHED_BYTES / GIB} GiB: copy less, or begin with the stage`,
  );
}

async function readFile(files: GuestFiles, path: string, spool: Spool): Promise<number> {
  const handle = await files.open(path, READ_ONLY);
  let offset = 0;
  for (;;) {
    const piece = await files.read(handle, BigInt(offset), PIECE_BYTES);
    if (piece.length === 0) break;
    offset += piece.length;
    checkSize(spool.length + piece.length);
    await append(spool, piece);
  }
  await files.close(handle);
  return offset;
}

async function append(spool: Spool, piece: Buffer): Promise<void> {
  try {
    await spool.append(piece);
  } catch (cause) {
    if (!(cause instanceof ApiError)) throw cause;
    throw new BuildError(cause.kind, cause.message, null, { cause });
  }
}

/** Errors of a walk are for the caller, unless they are those of the sandbox. */
async function explained(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (cause) {
    if ((cause as Error).constructor !== Error) throw cause;
    throw new BuildError('step_failed', `COPY: ${(cause as Error).message}`, null, { cause });
  }
}
