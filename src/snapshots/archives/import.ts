import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { violatedConstraint } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import type { EngineArchives, ForeignImage, LoadedSnapshot } from '../../engine/snapshot-archives.js';
import { ApiError } from '../../http/errors.js';
import { readLabels } from '../../http/parameters.js';
import type { Caller } from '../../access/caller.js';
import { newId } from '../../lib/uuid.js';
import { lockQuotas } from '../../quotas/queries.js';
import { reserve } from '../../quotas/reserve.js';
import { ImageBudget } from '../../registry/layer-check.js';
import { PullError } from '../../registry/pull-error.js';
import type { Step } from '../../registry/step.js';
import { withKeyLabels } from '../../sandboxes/admission/key-labels.js';
import { checkNames, refuseName } from '../create.js';
import { failSnapshot } from '../fail.js';
import { bytesLeft } from '../over-quota.js';
import { presentSnapshot } from '../present.js';
import { findSnapshot } from '../queries.js';
import { recordReady } from '../record-ready.js';
import type { SnapshotResponse } from '../schema.js';
import { TRANSITIONS } from '../state.js';
import { lockSnapshot } from '../work-queries.js';
import { readForeignImage } from './foreign-image.js';
import { refusalOf, reasonOf } from './import-failure.js';
import { insertImport, renewImport } from './import-queries.js';
import { RENEW_EVERY_MS } from './lost-imports.js';
import { Spool } from './spool.js';
import { archivesOf } from './supported.js';

const GIB = 1024 ** 3;
/** The most bytes of an archive, and of its uncompressed layers. */
export const MOST_IMPORT_BYTES = 256 * GIB;
const LONGEST_LOAD_MS = 30 * 60_000;

interface ImportQuery {
  name: string;
  labels?: string;
}

interface Upload {
  body: Readable | undefined;
  length: number | undefined;
  step: Step;
  signal: AbortSignal;
  /** The request may get the answer of an earlier one, so nothing but its body decides. */
  mayRepeat: boolean;
  /** Gets the SHA-256 of the body before anything changes. */
  onReceived: (digest: string) => Promise<void>;
}

interface Wanted {
  id: string;
  name: string;
  labels: Record<string, string>;
}

/**
 * Makes a snapshot of an archive. The engine gets an archive that the service writes: nothing of the caller but layers
 * with proven digests, and the checked fields of the configuration.
 */
export async function importSnapshot(
  ctx: Context,
  caller: Caller,
  query: ImportQuery,
  { body, length = 0, mayRepeat, step, signal, onReceived }: Upload,
): Promise<SnapshotResponse> {
  const archives = archivesOf(ctx.runtime);
  const labels = withKeyLabels(caller, readLabels('labels', query.labels)) ?? {};
  const wanted = { id: newId(), name: query.name, labels };
  checkNames(wanted.name, labels);
  if (!body) throw new ApiError('invalid_request', 'the body is empty: send the archive of an image');
  const early = mayRepeat ? MOST_IMPORT_BYTES : await mostBytes(ctx, caller, wanted.name);
  if (length > early) throw tooLarge(early);
  ctx.disk.check('data', length);
  const hash = createHash('sha256');
  let received = 0;
  const check = (chunk: Buffer) => {
    received += chunk.length;
    if (received > early) throw tooLarge(early);
    hash.update(chunk);
  };
  const spool = await Spool.receive(ctx.disk, body, { check, signal }).finally(() => body.resume());
  let most = early;
  try {
    await onReceived(hash.digest('hex'));
    if (mayRepeat) most = await mostBytes(ctx, caller, wanted.name);
    if (received > most) throw tooLarge(most);
    const created = ctx.now();
    const { architecture } = archives;
    const image = await readForeignImage(spool.handle, { architecture, created, step });
    await begin(ctx, caller, wanted, image);
    return await load(ctx, caller, wanted, { archives, image, most, step, signal });
  } catch (error) {
    throw refusalOf(error, most);
  } finally {
    await spool.close();
  }
}

/** The most bytes of the archive by the quota, without a lock. Refuses early what would be refused after the upload. */
async function mostBytes(ctx: Context, caller: Caller, name: string): Promise<number> {
  const { orgId } = caller;
  return inTransaction(ctx.pool, async (tx) => {
    if (await findSnapshot(tx, { orgId, labels: {} }, { name })) refuseName(name);
    await reserve(ctx, tx, caller, { snapshot: true });
    return Math.min(MOST_IMPORT_BYTES, await bytesLeft(tx, orgId));
  });
}

/** The row is there before the engine has anything: the sweep removes what has none. */
async function begin(
  ctx: Context,
  caller: Caller,
  { id, name, labels }: Wanted,
  { digest }: ForeignImage,
): Promise<void> {
  const { orgId, actor } = caller;
  try {
    await inTransaction(ctx.pool, async (tx) => {
      await lockQuotas(tx, orgId, 'exclusive');
      await reserve(ctx, tx, caller, { snapshot: true });
      await insertImport(tx, {
        org_id: orgId,
        id,
        name,
        labels,
        // There is no image below it.
        image: `imported@${digest}`,
        image_digest: digest,
        runtime: ctx.runtime.name,
        worker_id: ctx.runtime.engineId,
        actor,
        created_at: ctx.now(),
      });
    });
  } catch (error) {
    if (violatedConstraint(error) === 'snapshots_name') refuseName(name);
    throw error;
  }
}

interface Loading {
  archives: EngineArchives;
  image: ForeignImage;
  most: number;
  step: Step;
  signal: AbortSignal;
}

async function load(
  ctx: Context,
  caller: Caller,
  { id, name }: Wanted,
  { archives, image, most, step, signal }: Loading,
): Promise<SnapshotResponse> {
  const { orgId, actor } = caller;
  const row = { org_id: orgId, id };
  const cancelled = new AbortController();
  const renewing = setInterval(() => {
    void renewImport(ctx.pool, row, ctx.now()).then(
      (goesOn) => goesOn || cancelled.abort(new CancelledError()),
      (error: unknown) => ctx.log.warn({ err: error, snapshotId: id }, 'renewing an import failed'),
    );
  }, RENEW_EVERY_MS);
  let unpacked = 0;
  const budget = new ImageBudget({ bytes: most, beyond: 'too_large' }, (bytes) => {
    unpacked += bytes;
    try {
      ctx.disk.check('engine', unpacked);
    } catch (cause) {
      throw new PullError('no_space', 'the disk is full up to its reserve', { cause });
    }
  });
  const ended = AbortSignal.any([signal, cancelled.signal, AbortSignal.timeout(LONGEST_LOAD_MS)]);
  try {
    const loaded = await archives.load({ orgId, snapshotId: id }, image, { step, signal: ended, budget });
    return await complete(ctx, caller, id, { image, loaded });
  } catch (error) {
    // The client library of an engine throws an error of its own.
    const cause: unknown = ended.aborted ? ended.reason : error;
    const reason = reasonOf(cause, most);
    await inTransaction(ctx.pool, async (tx) => {
      const found = await lockSnapshot(tx, row);
      if (found && TRANSITIONS[found.status].fail === 'failed')
        await failSnapshot(tx, found, reason, actor, ctx.now());
    }).catch((err: unknown) =>
      ctx.log.error({ err, snapshotId: id, name }, 'the end of an import could not be recorded'),
    );
    throw cause;
  } finally {
    clearInterval(renewing);
  }
}

async function complete(
  ctx: Context,
  { orgId, actor }: Caller,
  id: string,
  { image, loaded }: { image: ForeignImage; loaded: LoadedSnapshot },
): Promise<SnapshotResponse> {
  return inTransaction(ctx.pool, async (tx) => {
    const row = await lockSnapshot(tx, { org_id: orgId, id });
    if (!row || TRANSITIONS[row.status].complete !== 'ready') throw new CancelledError();
    await lockQuotas(tx, orgId, 'exclusive');
    const at = ctx.now();
    const ready = await recordReady(ctx, tx, row, loaded, at);
    await recordEvent(tx, {
      orgId,
      type: 'snapshot_imported',
      actor,
      resourceId: id,
      at,
      payload: {
        snapshot_id: id,
        name: row.name,
        image_digest: image.digest,
        size_bytes: ready.size_bytes,
        digest: ready.digest,
      },
    });
    return presentSnapshot(ready);
  });
}

class CancelledError extends ApiError {
  constructor() {
    super('invalid_request', 'the import was cancelled: its snapshot was deleted meanwhile');
  }
}

function tooLarge(most: number): ApiError {
  return new ApiError(
    most < MOST_IMPORT_BYTES ? 'quota_exceeded' : 'payload_too_large',
    `the archive has more than the ${most} bytes that are left for it: delete snapshots, or send a smaller image`,
    { limit_bytes: most },
  );
}
