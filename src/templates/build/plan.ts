import { posix } from 'node:path';
import { EMPTY_CONFIG, type TemplateConfig } from '../../spec/template-config.js';
import { DockerfileError } from '../dockerfile/error.js';
import type { Dockerfile, Form } from '../dockerfile/instruction.js';
import { declareArgs } from '../dockerfile/declare-args.js';
import type { Source, Stage, Stages } from '../dockerfile/stages.js';
import { atLine, WordExpander, type Lookup } from '../dockerfile/words.js';
import type { ContextEntry } from '../context/entries.js';
import type { BaseImage } from '../queries.js';
import { planCopy, type CopyItem } from './plan-copy.js';
import type { Turn } from './turns.js';

/** The environment that the steps begin with. */
interface Base {
  image: BaseImage;
  /** The configuration of the template or the stage that the stage begins with. Default: none. */
  config?: TemplateConfig;
  /** The words of SHELL of the stage that it begins with. Default: those of Docker. */
  shell?: readonly string[];
  /** The variables of ARG of the stage that it begins with. Default: none. */
  args?: ReadonlyMap<string, string>;
}

/** Copies of one Dockerfile, which are bounded together. */
export interface CopyBudget {
  items: number;
  sources: number;
  /** The characters of the paths and links from other disks. */
  chars: number;
}

/** Work in the sandbox of a build. */
export type Step = { line: number; text: string } & (
  | { type: 'run'; args: [string, ...string[]]; env: string[]; cwd: string | null; user: string | null }
  | { type: 'workdir'; path: string }
  | {
      type: 'copy';
      target: string;
      /** False: the source is a file, and the target is its new path unless a directory is there. */
      intoDirectory: boolean;
      items: CopyItem[];
      owner: string | null;
      mode: number | null;
    }
  | {
      /** The files are known when the source has them. */
      type: 'copy-from';
      source: Source;
      paths: string[];
      /** As it is written, with its variables replaced. */
      destination: string;
      target: string;
      owner: string | null;
      mode: number | null;
    }
);

export interface Plan {
  steps: Step[];
  config: TemplateConfig;
  shell: readonly string[];
  args: ReadonlyMap<string, string>;
}

interface PlanInput {
  stage: Stage;
  base: Base;
  buildArgs: ReadonlyMap<string, string>;
  entries: ReadonlyMap<string, ContextEntry>;
  budget: CopyBudget;
  turn: Turn;
}

const SHELL = ['/bin/sh', '-c'];
const ROOT = '/';

/** The names that `build_args` may have. */
export function argNames({ instructions }: Dockerfile): Set<string> {
  return new Set(instructions.flatMap((one) => (one.type === 'arg' ? one.args.map(({ name }) => name) : [])));
}

/**
 * Computes the work of a stage without a sandbox: the same input gives the same steps, whose digests are the keys of
 * the cache. Throws DockerfileError.
 */
export async function planStage(
  { globals, escape }: Pick<Stages, 'globals' | 'escape'>,
  { stage, base, buildArgs, entries, budget, turn }: PlanInput,
): Promise<Plan> {
  const { image, config: initial = EMPTY_CONFIG } = base;
  const config: TemplateConfig = structuredClone(initial);
  const env = new Map(config.env.map(({ key, value }) => [key, value]));
  const ofImage = new Map(image.env.map((entry) => split(entry)));
  const args = new Map(base.args);
  const lookup: Lookup = (name) => env.get(name) ?? args.get(name) ?? ofImage.get(name);
  let shell: readonly string[] = base.shell ?? SHELL;
  let hasOwnCmd = false;
  const steps: Step[] = [];
  const words = (form: Form) => ('words' in form ? form.words : [...shell, form.script]);
  const expander = new WordExpander(escape);
  // A chain of templates or stages has the bound of one.
  atLine(stage, () => expander.count(JSON.stringify([config.env, config.labels, config.exposed, ...args])));

  for (const one of stage.instructions) {
    const place = { line: one.line, text: one.text };
    const expand = (word: string) => atLine(one, () => expander.expand(word, lookup));
    const cwd = config.workdir ?? (image.workdir || ROOT);
    switch (one.type) {
      case 'arg':
        declareArgs(one, expander, args, buildArgs, globals, lookup);
        break;
      case 'env':
        // Variables of the same instruction have their earlier values.
        for (const [key, value] of one.pairs.map((pair) => [pair.key, expand(pair.value)] as const))
          env.set(key, value);
        break;
      case 'label':
        for (const { key, value } of one.pairs) config.labels[key] = expand(value);
        break;
      case 'expose':
        config.exposed = [...new Set([...config.exposed, ...one.ports.map(expand)])];
        break;
      case 'user':
        config.user = expand(one.user);
        if (config.user === '')
          throw new DockerfileError(one.line, 'USER has no user: its variables are empty');
        break;
      case 'shell':
        shell = one.words;
        break;
      case 'cmd':
        config.cmd = words(one.form);
        hasOwnCmd = true;
        break;
      case 'entrypoint':
        config.entrypoint = words(one.form);
        // As in Docker: the command of the base belongs to the entrypoint of the base.
        if (!hasOwnCmd) config.cmd = null;
        break;
      case 'workdir': {
        const path = posix.resolve(cwd, expand(one.path));
        config.workdir = path;
        steps.push({ ...place, type: 'workdir', path });
        break;
      }
      case 'run': {
        const [program, ...more] = words(one.form);
        if (program === undefined) throw new DockerfileError(one.line, 'RUN has no program');
        const variables = [...new Map([...args, ...env])].map(([key, value]) => `${key}=${value}`);
        const user = config.user ?? (image.user || null);
        steps.push({ ...place, type: 'run', args: [program, ...more], env: variables, cwd, user });
        break;
      }
      case 'copy': {
        const sources = one.sources.map(expand);
        const target = expand(one.target);
        const owner = one.owner === null ? null : expand(one.owner);
        const common = { ...place, target: posix.resolve(cwd, target), owner, mode: one.mode };
        if (one.source) {
          const { source } = one;
          steps.push({ ...common, type: 'copy-from', source, paths: sources, destination: target });
          break;
        }
        const planned = await planCopy({ ...one, sources, target }, entries, budget, turn);
        steps.push({ ...common, type: 'copy', ...planned });
      }
    }
  }
  config.env = [...env].map(([key, value]) => ({ key, value }));
  return { steps, config, shell, args };
}

function split(entry: string): [string, string] {
  const index = entry.indexOf('=');
  return index === -1 ? [entry, ''] : [entry.slice(0, index), entry.slice(index + 1)];
}
