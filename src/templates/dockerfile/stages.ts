import { parseImageReference } from '../../spec/image-reference.js';
import { isTemplateBase, parseTemplateBase, type TemplateName } from '../reference.js';
import { declareArgs } from './declare-args.js';
import { DockerfileError } from './error.js';
import type { Dockerfile, Instruction, InstructionOf } from './instruction.js';
import { atLine, WordExpander } from './words.js';

export const MOST_STAGES = 20;
const STAGE_NAME = /^[a-z][a-z0-9._-]{0,127}$/;

/** A disk that a stage begins with, or that files are copied from. */
export type Source =
  | { type: 'stage'; index: number }
  | ({ type: 'template' } & TemplateName)
  | { type: 'image'; reference: string };

type StageCopy = InstructionOf<'copy'> & {
  /** Null: the context. */
  source: Source | null;
};
type StageInstruction = Exclude<Instruction, { type: 'copy' | 'from' }> | StageCopy;

export interface Stage {
  /** Among all stages of the file, from 0. */
  index: number;
  name: string | null;
  base: Source;
  /** The line of FROM. */
  line: number;
  /** Those below FROM. */
  instructions: StageInstruction[];
}

export interface Stages {
  escape: string;
  /** The variables of ARG above the first FROM. */
  globals: ReadonlyMap<string, string>;
  /** In the order of the file. A stage needs earlier ones alone. */
  stages: readonly Stage[];
}

/** Reads the stages, with the variables of FROM replaced. Throws DockerfileError. */
export function readStages(
  { escape, instructions }: Dockerfile,
  buildArgs: ReadonlyMap<string, string>,
): Stages {
  const expander = new WordExpander(escape);
  const globals = new Map<string, string>();
  const stages: Stage[] = [];
  const names = new Set(
    instructions.flatMap((one) => (one.type === 'from' && one.name !== null ? [one.name.toLowerCase()] : [])),
  );
  for (const one of instructions) {
    const current = stages.at(-1);
    if (one.type === 'from') {
      if (stages.length === MOST_STAGES)
        throw new DockerfileError(
          one.line,
          `a Dockerfile has at most ${MOST_STAGES} stages: build some as templates`,
        );
      stages.push(
        beginStage(
          one,
          stages,
          atLine(one, () => expander.expand(one.image, (name) => globals.get(name))),
        ),
      );
    } else if (!current) {
      if (one.type === 'arg') declareArgs(one, expander, globals, buildArgs);
    } else if (one.type === 'copy') {
      const source = one.from === null ? null : sourceOfCopy(one, one.from, stages, names);
      current.instructions.push({ ...one, source });
    } else current.instructions.push(one);
  }
  return { escape, globals, stages };
}

/** The stage that is built: the last one, or that with the name or the number. Undefined: there is none. */
export function targetOf({ stages }: Stages, target: string | null): Stage | undefined {
  if (target === null) return stages.at(-1);
  const named = stages.find(({ name }) => name === target.toLowerCase());
  return named ?? (/^\d{1,3}$/.test(target) ? stages[Number(target)] : undefined);
}

/** The stages that the target needs, in the order of the file, with the target as the last one. */
export function neededStages({ stages }: Stages, target: Stage): Stage[] {
  const needed = new Set([target.index]);
  // From the last one: a stage needs earlier ones alone.
  for (const stage of stages.toReversed()) {
    if (!needed.has(stage.index)) continue;
    for (const source of sourcesOf(stage)) if (source.type === 'stage') needed.add(source.index);
  }
  return stages.filter(({ index }) => needed.has(index));
}

/** The disk below a stage, and those that it copies from. */
export function sourcesOf({ base, instructions }: Stage): Source[] {
  const copied = instructions.flatMap((one) => (one.type === 'copy' && one.source ? [one.source] : []));
  return [base, ...copied];
}

export function showSource(source: Source, stages: readonly Stage[]): string {
  if (source.type === 'image') return source.reference;
  if (source.type === 'template') return `template:${source.name}:${source.tag}`;
  return stages.find(({ index }) => index === source.index)?.name ?? `stage ${source.index}`;
}

function beginStage(
  { line, name: given }: InstructionOf<'from'>,
  stages: readonly Stage[],
  from: string,
): Stage {
  if (from === '') throw new DockerfileError(line, 'FROM has no image: its variables are empty');
  const name = given?.toLowerCase() ?? null;
  if (name !== null && !STAGE_NAME.test(name))
    throw new DockerfileError(
      line,
      `"${name.slice(0, 80)}" is no name of a stage: it begins with a letter, and has letters, digits, ".", "-" and "_"`,
    );
  if (name !== null && stages.some((one) => one.name === name))
    throw new DockerfileError(line, `two stages have the name "${name}": choose another one`);
  const earlier = stages.find((one) => one.name === from.toLowerCase());
  const base: Source = earlier ? { type: 'stage', index: earlier.index } : outerSource(from, line);
  return { index: stages.length, name, base, line, instructions: [] };
}

/** The current stage is the last one of `stages`. `names`: those of all stages of the file. */
function sourceOfCopy(
  { line }: InstructionOf<'copy'>,
  from: string,
  stages: readonly Stage[],
  names: ReadonlySet<string>,
): Source {
  const earlier = stages.slice(0, -1);
  const named = earlier.find(({ name }) => name === from.toLowerCase());
  if (named) return { type: 'stage', index: named.index };
  // Not the image with that name: anybody may have published it.
  if (names.has(from.toLowerCase()))
    throw new DockerfileError(
      line,
      `COPY: "${from.slice(0, 80)}" is this stage or a later one: copy from a stage above, or write an image with its tag`,
    );
  if (!/^\d+$/.test(from)) return outerSource(from, line);
  const index = Number(from);
  if (index < earlier.length) return { type: 'stage', index };
  throw new DockerfileError(
    line,
    `COPY: there is no stage ${from.slice(0, 10)} above this one: they are counted from 0`,
  );
}

function outerSource(from: string, line: number): Source {
  if (from.toLowerCase() === 'scratch')
    throw new DockerfileError(line, 'scratch is not supported: name an image');
  if (isTemplateBase(from)) {
    const named = parseTemplateBase(from);
    if (named) return { type: 'template', ...named };
  } else if (parseImageReference(from)) return { type: 'image', reference: from };
  throw new DockerfileError(
    line,
    `"${from.slice(0, 200)}" is no image, such as python:3.12, no template, such as template:agent:1, and no stage above this one`,
  );
}
