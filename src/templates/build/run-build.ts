import type { TemplateConfig } from '../../spec/template-config.js';
import { NO_CONTEXT, openContext } from '../context/read.js';
import { parseDockerfile } from '../dockerfile/parse.js';
import { keepLayer, useLayers } from '../layer-queries.js';
import { findNamed, updateTemplate, type BaseImage } from '../queries.js';
import { isTemplateBase, parseTemplateBase } from '../reference.js';
import { captureBuild } from './capture.js';
import { digestsOf } from './digests.js';
import { inBuild, type BuildEnvironment } from './environment.js';
import { executeStep } from './execute.js';
import { BuildError } from './failure.js';
import { baseOf, planBuild, type Step } from './plan.js';
import { removeBuildSandbox, startBuildSandbox, type RunningSandbox, type Start } from './sandbox.js';
import type { Turn } from './turns.js';

export interface Built {
  snapshotId: string;
  config: TemplateConfig;
  image: BaseImage;
}

/** The disk that the first step begins with. */
interface Begun {
  start: Start;
  /** The digest of the disk. Null: the engine does not tell, so nothing is cached. */
  digest: string | null;
  image: BaseImage;
  config?: TemplateConfig;
}

/**
 * Builds a template. The steps up to a RUN share a sandbox, whose disk is then captured: the next ones begin with it,
 * and later builds with the same steps do. Nothing of the build runs when this returns or throws.
 */
export async function runBuild(env: BuildEnvironment): Promise<Built> {
  const sandbox = new CurrentSandbox(env);
  try {
    return await build(env, sandbox);
  } finally {
    await sandbox.remove();
  }
}

/** At most one sandbox of a build runs. */
class CurrentSandbox {
  private running: RunningSandbox | undefined;

  constructor(private readonly env: BuildEnvironment) {}

  /** The running one, or a new one. */
  async get(start: Start): Promise<RunningSandbox> {
    return (this.running ??= await startBuildSandbox(this.env, start));
  }

  async remove(): Promise<void> {
    const { running } = this;
    this.running = undefined;
    if (!running) return;
    running.leave();
    await removeBuildSandbox(this.env, running.id);
  }
}

async function build(env: BuildEnvironment, sandbox: CurrentSandbox): Promise<Built> {
  const { ctx, row, log, signal, turns } = env;
  const dockerfile = parseDockerfile(row.dockerfile);
  const buildArgs = new Map(Object.entries(row.build_args));
  const key = { orgId: row.org_id, templateId: row.id };
  const context = row.context_bytes === null ? NO_CONTEXT : await openContext(ctx.pool, key);
  const begun = await begin(env, sandbox, baseOf(dockerfile, buildArgs));
  const { image } = begun;
  const turn: Turn = async (work) => {
    const result = await turns.step(row.org_id, work);
    signal.throwIfAborted();
    return result;
  };
  const { steps, config } = await planBuild(dockerfile, begun, buildArgs, context.entries, turn);
  const digests = begun.digest === null ? [] : await digestsOf(begun.digest, steps, turn);
  const cached = row.uses_cache ? await findCached(env, steps, digests) : undefined;
  let at = 0;
  let { start } = begun;
  let snapshotId: string | undefined;
  if (cached) {
    await sandbox.remove();
    at = cached.count;
    start = { snapshotId: cached.snapshotId };
    for (const [index, step] of steps.slice(0, at).entries())
      log.say(`${title(step, index, steps)} (cached)`);
    await inBuild(env, async (tx) =>
      updateTemplate(tx, row, { steps_done: at, steps_cached: at }, ctx.now()),
    );
    if (at === steps.length) ({ snapshotId } = cached);
  }
  while (snapshotId === undefined) {
    const current = await sandbox.get(start);
    const end = row.uses_cache ? endOfGroup(steps, at) : steps.length;
    for (; at < end; at += 1) {
      const step = steps[at]!;
      log.say(title(step, at, steps));
      await executeStep(current, step, { context, log, signal });
      await inBuild(env, async (tx) => updateTemplate(tx, row, { steps_done: at + 1 }, ctx.now()));
    }
    const made = await captureBuild(env, current.id);
    const digest = digests[at - 1];
    if (digest !== undefined) await keep(env, digest, made);
    await sandbox.remove();
    if (at === steps.length) snapshotId = made;
    else start = { snapshotId: made };
  }
  return { snapshotId, config, image };
}

/** The sandbox of an image tells its digest and its configuration. */
async function begin(env: BuildEnvironment, sandbox: CurrentSandbox, from: string): Promise<Begun> {
  const { ctx, row, log } = env;
  log.say(`FROM ${from}`);
  if (isTemplateBase(from)) {
    const { name, tag } = parseTemplateBase(from)!;
    const { org_id: orgId, key_labels: labels } = row;
    const found = await findNamed(ctx.pool, { orgId, labels }, name, tag);
    if (!found?.snapshot_id || !found.image_config || !found.config || found.worker_id !== row.worker_id) {
      throw new BuildError(
        'template_not_found',
        `FROM: there is no template "${name}:${tag}" any more: name another one`,
      );
    }
    const { snapshot_id: snapshotId, image_config: image, config } = found;
    return { start: { snapshotId }, digest: `snapshot ${snapshotId}`, image, config };
  }
  const start = { image: from };
  const { id, imageDigest } = await sandbox.get(start);
  const found = await ctx.runtime.snapshots?.imageConfig(id);
  if (!found)
    throw new BuildError('sandbox_failed', 'the sandbox of the build was deleted: repeat the request');
  const { env: variables, user, workdir } = found;
  return { start, digest: imageDigest, image: { env: variables, user, workdir } };
}

function title(step: Step, index: number, steps: readonly Step[]): string {
  return `step ${index + 1} of ${steps.length}: ${step.text}`;
}

/** The steps up to a RUN. The end of the build has no group of its own. */
function endOfGroup(steps: readonly Step[], begin: number): number {
  const run = steps.findIndex(({ type }, index) => index >= begin && type === 'run');
  return run === -1 ? steps.length : run + 1;
}

/** The most steps whose result an earlier build has left. */
async function findCached(
  env: BuildEnvironment,
  steps: readonly Step[],
  digests: readonly string[],
): Promise<{ count: number; snapshotId: string } | undefined> {
  if (digests.length === 0) return undefined;
  const { ctx, row } = env;
  const found = await inBuild(env, async (tx) =>
    useLayers(tx, { ...row, template_id: row.id }, digests, ctx.now()),
  );
  for (let count = steps.length; count > 0; count -= 1) {
    const snapshotId = found.get(digests[count - 1]!);
    if (snapshotId !== undefined) return { count, snapshotId };
  }
  return undefined;
}

async function keep(env: BuildEnvironment, digest: string, snapshot_id: string): Promise<void> {
  const { ctx, row } = env;
  const { org_id, worker_id } = row;
  const layer = { org_id, worker_id, digest, snapshot_id, template_id: row.id };
  await inBuild(env, async (tx) => keepLayer(tx, layer, ctx.now()));
}
