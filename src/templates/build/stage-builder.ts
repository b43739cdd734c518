import type { ImageConfig } from '../../registry/image-config.js';
import type { TemplateConfig } from '../../spec/template-config.js';
import { Spool } from '../../snapshots/archives/spool.js';
import type { StoredContext } from '../context/read.js';
import { showSource, type Source, type Stage, type Stages } from '../dockerfile/stages.js';
import { keepLayer, useLayers } from '../layer-queries.js';
import { findNamed, updateTemplate, type BaseImage } from '../queries.js';
import { captureBuild } from './capture.js';
import type { CurrentSandbox } from './current-sandbox.js';
import { digestsOf } from './digests.js';
import { inBuild, type BuildEnvironment } from './environment.js';
import type { InStep } from '../../sandboxes/exec/stream.js';
import { executeStep } from './execute.js';
import { atLine, BuildError } from './failure.js';
import { contentOf, fetchFiles, type Fetched } from './fetch.js';
import { planStage, type CopyBudget, type Plan, type Step } from './plan.js';
import type { RunningSandbox, Start } from './sandbox.js';
import type { Turn } from './turns.js';

/** A disk outside of the file. */
interface OuterDisk {
  start: Start;
  /** Null: the engine does not tell, so nothing is cached. */
  digest: string | null;
  image: BaseImage;
  config?: TemplateConfig;
}

type Beginning = Omit<OuterDisk, 'start'> & Partial<Pick<Plan, 'shell' | 'args'>>;

interface PlannedStage {
  stage: Stage;
  plan: Plan;
  image: BaseImage;
  /** The disk after each step. Those that are missing are not known. */
  digests: string[];
  /** The disk of the stage. Null: it is not known. */
  digest: string | null;
  /** The number of the first step among all of the build. */
  first: number;
}

type CopyFromStep = Extract<Step, { type: 'copy-from' }>;

/** Builds the stages of a Dockerfile, each once, and only if another one or the template needs its disk. */
export class StageBuilder {
  private readonly planned = new Map<number, PlannedStage>();
  private readonly disks = new Map<number, string>();
  private readonly outer = new Map<string, OuterDisk>();
  private readonly budget: CopyBudget = { items: 0, sources: 0, chars: 0 };
  private total = 0;
  private done = 0;
  private executed = 0;

  constructor(
    private readonly env: BuildEnvironment,
    private readonly sandbox: CurrentSandbox,
    private readonly file: Stages,
    private readonly context: StoredContext,
    private readonly turn: Turn,
  ) {}

  /** In the order of the file: a stage needs earlier ones alone. */
  async plan(stage: Stage): Promise<void> {
    const { context, turn, budget } = this;
    this.env.log.say(`FROM ${showSource(stage.base, this.file.stages)}`);
    const begun = await withLine(stage.line, async () => this.beginningOf(stage.base));
    const buildArgs = new Map(Object.entries(this.env.row.build_args));
    const base = {
      image: begun.image,
      ...(begun.config ? { config: begun.config } : {}),
      ...(begun.shell ? { shell: begun.shell } : {}),
      ...(begun.args ? { args: begun.args } : {}),
    };
    const plan = await planStage(this.file, {
      stage,
      base,
      buildArgs,
      entries: context.entries,
      budget,
      turn,
    });
    const { steps } = plan;
    for (const step of steps) {
      if (step.type !== 'copy-from' || step.source.type === 'stage') continue;
      const { line, source } = step;
      await withLine(line, async () => this.outerDisk(source));
    }
    const digests =
      begun.digest === null
        ? []
        : await digestsOf(begun.digest, this.env.row.key_labels, steps, turn, (source) =>
            this.knownDigest(source),
          );
    const digest = digests.length < steps.length ? null : (digests.at(-1) ?? begun.digest);
    this.planned.set(stage.index, { stage, plan, image: begun.image, digests, digest, first: this.total });
    this.total += steps.length;
  }

  /** The snapshot of the disk of a stage, and the values for sandboxes. */
  async build({ index }: Stage): Promise<{ snapshotId: string; config: TemplateConfig; image: BaseImage }> {
    const snapshotId = await this.diskOf(index);
    const { plan, image } = this.planned.get(index)!;
    // The steps of stages that only cached steps needed are cached too.
    const { env, total, executed } = this;
    const change = { steps_done: total, steps_cached: total - executed };
    await inBuild(env, async (tx) => updateTemplate(tx, env.row, change, env.ctx.now()));
    return { snapshotId, config: plan.config, image };
  }

  private async diskOf(index: number): Promise<string> {
    const known = this.disks.get(index);
    if (known !== undefined) return known;
    const made = await this.makeDisk(this.planned.get(index)!);
    this.disks.set(index, made);
    return made;
  }

  private async makeDisk({ stage, plan: { steps }, digests, first }: PlannedStage): Promise<string> {
    const { env, sandbox, context } = this;
    const { row, log, signal, turns } = env;
    const inStep: InStep = (work) => turns.step(row.org_id, work);
    const cached = row.uses_cache ? await this.findCached(digests) : undefined;
    let at = cached?.count ?? 0;
    for (const [offset, step] of steps.slice(0, at).entries())
      log.say(`${this.title(step, first + offset)} (cached)`);
    if (at > 0) await this.note(at);
    if (cached && at === steps.length) return cached.snapshotId;
    let start = cached ? { snapshotId: cached.snapshotId } : await this.startOf(stage.base);
    if (steps.length === 0 && stage.base.type === 'stage' && 'snapshotId' in start) return start.snapshotId;
    const copies = steps.slice(at).filter((step) => step.type === 'copy-from');
    // First the disks of other stages, which have spools of their own: a build has one at a time.
    for (const { source } of copies) await this.startOf(source);
    const spool = await Spool.open(env.ctx.disk);
    try {
      const fetched = await this.fetchAll(copies, spool);
      for (;;) {
        const current = await this.begin(start);
        const end = row.uses_cache ? endOfGroup(steps, at) : steps.length;
        for (; at < end; at += 1) {
          const step = steps[at]!;
          log.say(this.title(step, first + at));
          if (step.type === 'copy-from') {
            const copy = { ...step, ...fetched.get(step)!, type: 'copy' as const };
            await executeStep(current, copy, { context: contentOf(spool), log, signal, inStep });
          } else await executeStep(current, step, { context, log, signal, inStep });
          this.executed += 1;
          await this.note(1);
        }
        const made = await captureBuild(env, current.id);
        const digest = digests[at - 1];
        if (digest !== undefined) await this.keep(digest, made);
        await sandbox.remove();
        if (at === steps.length) return made;
        start = { snapshotId: made };
      }
    } finally {
      await spool.close();
    }
  }

  /** Before the sandbox of the stage starts: one of a build runs at a time. */
  private async fetchAll(copies: readonly CopyFromStep[], spool: Spool): Promise<Map<CopyFromStep, Fetched>> {
    const { budget, turn } = this;
    const { signal } = this.env;
    const fetched = new Map<CopyFromStep, Fetched>();
    const key = ({ source }: CopyFromStep) => showSource(source, []);
    // The copies of a source follow each other, so that they share a sandbox.
    for (const step of copies.toSorted((a, b) => key(a).localeCompare(key(b)))) {
      const files = await withLine(step.line, async () => {
        const running = await this.begin(await this.startOf(step.source));
        return fetchFiles(await running.visit(), step, { spool, budget, turn, signal });
      });
      fetched.set(step, files);
    }
    return fetched;
  }

  private async startOf(source: Source): Promise<Start> {
    if (source.type !== 'stage') return (await this.outerDisk(source)).start;
    const { stage, plan } = this.planned.get(source.index)!;
    // Without steps its disk is the image itself. A template may be replaced meanwhile, so its disk is captured.
    if (plan.steps.length === 0 && stage.base.type !== 'template') return this.startOf(stage.base);
    return { snapshotId: await this.diskOf(source.index) };
  }

  private async begin(start: Start): Promise<RunningSandbox> {
    const running = await this.sandbox.get(start);
    const planned = 'image' in start ? this.outer.get(start.image) : undefined;
    // The digest is a part of the keys of the cache.
    if (planned && planned.digest !== running.imageDigest)
      throw new BuildError(
        'sandbox_failed',
        'the image was replaced in its registry during the build: repeat the request',
      );
    return running;
  }

  private async beginningOf(source: Source): Promise<Beginning> {
    if (source.type !== 'stage') return this.outerDisk(source);
    const { plan, image, digest } = this.planned.get(source.index)!;
    const { config, shell, args } = plan;
    return { digest, image, config, shell, args };
  }

  private knownDigest(source: Source): string | null {
    if (source.type === 'stage') return this.planned.get(source.index)!.digest;
    return this.outer.get(showSource(source, []))?.digest ?? null;
  }

  private async outerDisk(source: Exclude<Source, { type: 'stage' }>): Promise<OuterDisk> {
    const key = showSource(source, []);
    const known = this.outer.get(key);
    if (known) return known;
    const found =
      source.type === 'template' ? await this.template(source) : await this.image(source.reference);
    this.outer.set(key, found);
    return found;
  }

  private async template({ name, tag }: { name: string; tag: string }): Promise<OuterDisk> {
    const { ctx, row } = this.env;
    const { org_id: orgId, key_labels: labels } = row;
    const found = await findNamed(ctx.pool, { orgId, labels }, name, tag);
    if (!found?.snapshot_id || !found.image_config || !found.config || found.worker_id !== row.worker_id) {
      throw new BuildError(
        'template_not_found',
        `there is no template "${name}:${tag}" any more: name another one`,
      );
    }
    const { snapshot_id: snapshotId, image_config: image, config } = found;
    return { start: { snapshotId }, digest: `snapshot ${snapshotId}`, image, config };
  }

  /** A build whose steps are all cached starts no sandbox, if the engine tells what its images are. */
  private async image(reference: string): Promise<OuterDisk> {
    const start = { image: reference };
    const { ctx, row } = this.env;
    const wanted = {
      orgId: row.org_id,
      image: reference,
      pullPolicy: row.sandbox.pull_policy ?? 'if_missing',
    };
    const { digest, config } =
      (await ctx.runtime.snapshots?.imageAtHand?.(wanted)) ?? (await this.imageOfSandbox(start));
    const { env, user, workdir } = config;
    return { start, digest, image: { env, user, workdir } };
  }

  private async imageOfSandbox(
    start: Extract<Start, { image: string }>,
  ): Promise<{ digest: string | null; config: ImageConfig }> {
    const { id, imageDigest } = await this.sandbox.get(start);
    const config = await this.env.ctx.runtime.snapshots?.imageConfig(id);
    if (!config)
      throw new BuildError('sandbox_failed', 'the sandbox of the build was deleted: repeat the request');
    return { digest: imageDigest, config };
  }

  private title(step: Step, index: number): string {
    return `step ${index + 1} of ${this.total}: ${step.text}`;
  }

  private async note(steps: number): Promise<void> {
    const { ctx, row } = this.env;
    this.done += steps;
    const change = { steps_done: this.done, steps_cached: this.done - this.executed };
    await inBuild(this.env, async (tx) => updateTemplate(tx, row, change, ctx.now()));
  }

  /** The most steps whose result an earlier build has left. */
  private async findCached(
    digests: readonly string[],
  ): Promise<{ count: number; snapshotId: string } | undefined> {
    if (digests.length === 0) return undefined;
    const { ctx, row } = this.env;
    const found = await inBuild(this.env, async (tx) =>
      useLayers(tx, { ...row, template_id: row.id }, digests, ctx.now()),
    );
    for (let count = digests.length; count > 0; count -= 1) {
      const snapshotId = found.get(digests[count - 1]!);
      if (snapshotId !== undefined) return { count, snapshotId };
    }
    return undefined;
  }

  private async keep(digest: string, snapshot_id: string): Promise<void> {
    const { ctx, row } = this.env;
    const { org_id, worker_id } = row;
    const layer = { org_id, worker_id, digest, snapshot_id, template_id: row.id };
    await inBuild(this.env, async (tx) => keepLayer(tx, layer, ctx.now()));
  }
}

/** Names the line in a failure of the work that names none. */
async function withLine<T>(line: number, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw atLine(error, line);
  }
}

/** The steps up to a RUN. The end of the build has no group of its own. */
function endOfGroup(steps: readonly Step[], begin: number): number {
  const run = steps.findIndex(({ type }, index) => index >= begin && type === 'run');
  return run === -1 ? steps.length : run + 1;
}
