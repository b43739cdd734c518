import { posix } from 'node:path';
import { EMPTY_CONFIG, type TemplateConfig } from '../../spec/template-config.js';
import { DockerfileError } from '../dockerfile/error.js';
import type { Dockerfile, Form, Instruction, InstructionOf } from '../dockerfile/instruction.js';
import { WordExpander, type Lookup } from '../dockerfile/words.js';
import type { ContextEntry } from '../context/entries.js';
import type { BaseImage } from '../queries.js';
import { planCopy, type CopyItem } from './plan-copy.js';
import type { Turn } from './turns.js';

/** The environment that the steps begin with. */
interface Base {
  image: BaseImage;
  /** The configuration of the template that the build begins with. Default: none. */
  config?: TemplateConfig;
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
);

export interface Plan {
  steps: Step[];
  config: TemplateConfig;
}

const SHELL = ['/bin/sh', '-c'];
const ROOT = '/';

/** The image of FROM, with its variables replaced. Throws DockerfileError. */
export function baseOf({ instructions, escape }: Dockerfile, buildArgs: ReadonlyMap<string, string>): string {
  const args = new Map<string, string>();
  const expander = new WordExpander(escape);
  for (const one of instructions) {
    if (one.type === 'arg') declare(one, expander, args, buildArgs);
    if (one.type !== 'from') continue;
    const image = at(one, () => expander.expand(one.image, (name) => args.get(name)));
    if (image === '') throw new DockerfileError(one.line, 'FROM has no image: its variables are empty');
    return image;
  }
  throw new DockerfileError(1, 'there is no FROM');
}

/** The names that `build_args` may have. */
export function argNames({ instructions }: Dockerfile): Set<string> {
  return new Set(instructions.flatMap((one) => (one.type === 'arg' ? one.args.map(({ name }) => name) : [])));
}

/**
 * Computes the work of a build without a sandbox: the same input gives the same steps, whose digests are the keys of
 * the cache. Throws DockerfileError.
 */
export async function planBuild(
  { instructions, escape }: Dockerfile,
  { image, config: initial = EMPTY_CONFIG }: Base,
  buildArgs: ReadonlyMap<string, string>,
  entries: ReadonlyMap<string, ContextEntry>,
  turn: Turn,
): Promise<Plan> {
  const config: TemplateConfig = structuredClone(initial);
  const env = new Map(config.env.map(({ key, value }) => [key, value]));
  const ofImage = new Map(image.env.map((entry) => split(entry)));
  const globals = new Map<string, string>();
  let args = globals;
  const lookup: Lookup = (name) => env.get(name) ?? args.get(name) ?? ofImage.get(name);
  let shell = SHELL;
  let hasOwnCmd = false;
  const steps: Step[] = [];
  const words = (form: Form) => ('words' in form ? form.words : [...shell, form.script]);
  const budget = { items: 0, sources: 0 };
  const expander = new WordExpander(escape);

  for (const one of instructions) {
    const place = { line: one.line, text: one.text };
    const expand = (word: string) => at(one, () => expander.expand(word, lookup));
    const cwd = config.workdir ?? (image.workdir || ROOT);
    switch (one.type) {
      case 'from':
        args = new Map();
        // A chain of templates has the bound of one Dockerfile.
        at(one, () => expander.count(JSON.stringify([config.env, config.labels, config.exposed])));
        break;
      case 'arg':
        declare(one, expander, args, buildArgs, args === globals ? undefined : globals, lookup);
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
        const planned = await planCopy({ ...one, sources, target }, entries, budget, turn);
        const owner = one.owner === null ? null : expand(one.owner);
        const absolute = posix.resolve(cwd, target);
        steps.push({ ...place, type: 'copy', ...planned, target: absolute, owner, mode: one.mode });
      }
    }
  }
  config.env = [...env].map(([key, value]) => ({ key, value }));
  return { steps, config };
}

function declare(
  { args: declared, line }: InstructionOf<'arg'>,
  expander: WordExpander,
  args: Map<string, string>,
  buildArgs: ReadonlyMap<string, string>,
  globals?: ReadonlyMap<string, string>,
  lookup: Lookup = (name) => args.get(name),
): void {
  for (const { name, value } of declared) {
    const initial = value === null ? globals?.get(name) : at({ line }, () => expander.expand(value, lookup));
    const given = buildArgs.get(name) ?? initial;
    if (given === undefined) continue;
    at({ line }, () => expander.count(name));
    if (given !== initial) at({ line }, () => expander.count(given));
    args.set(name, given);
  }
}

function split(entry: string): [string, string] {
  const index = entry.indexOf('=');
  return index === -1 ? [entry, ''] : [entry.slice(0, index), entry.slice(index + 1)];
}

/** Adds the line to messages of the expander. */
function at<T>({ line }: Pick<Instruction, 'line'>, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof DockerfileError) throw error;
    throw new DockerfileError(line, (error as Error).message);
  }
}
