import type { TemplateConfig } from '../../spec/template-config.js';
import { NO_CONTEXT, openContext } from '../context/read.js';
import { parseDockerfile } from '../dockerfile/parse.js';
import { neededStages, readStages, targetOf } from '../dockerfile/stages.js';
import type { BaseImage } from '../queries.js';
import { CurrentSandbox } from './current-sandbox.js';
import type { BuildEnvironment } from './environment.js';
import { BuildError } from './failure.js';
import { StageBuilder } from './stage-builder.js';
import type { Turn } from './turns.js';

export interface Built {
  snapshotId: string;
  config: TemplateConfig;
  image: BaseImage;
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

async function build(env: BuildEnvironment, sandbox: CurrentSandbox): Promise<Built> {
  const { ctx, row, signal, turns } = env;
  const file = readStages(parseDockerfile(row.dockerfile), new Map(Object.entries(row.build_args)));
  const target = targetOf(file, row.target);
  if (!target) throw new BuildError('invalid_dockerfile', `there is no stage "${row.target}"`);
  const key = { orgId: row.org_id, templateId: row.id };
  const turn: Turn = async (work) => {
    const result = await turns.step(row.org_id, work);
    signal.throwIfAborted();
    return result;
  };
  const context = row.context_bytes === null ? NO_CONTEXT : await openContext(ctx.pool, key, turn);
  const builder = new StageBuilder(env, sandbox, file, context, turn);
  for (const stage of neededStages(file, target)) await builder.plan(stage);
  return builder.build(target);
}
