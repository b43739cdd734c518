/** A step that the log of a build names. */
export interface BegunStep {
  /** From 1. */
  number: number;
  text: string;
  at: string;
}

interface Build {
  status: string;
  steps_done: number;
  steps_cached: number;
}

type StepState = 'cached' | 'done' | 'building' | 'failed' | 'cancelled';

const LINE = /^step (\d+) of \d+: (.*)$/;

/** The steps that lines of the service name. The output of commands has other sources. */
export function stepsIn({ source, text, ts }: Record<'source' | 'text' | 'ts', string>): BegunStep[] {
  if (source !== 'build') return [];
  return text.split('\n').flatMap((line) => {
    const [, number, title] = LINE.exec(line) ?? [];
    return number === undefined || title === undefined
      ? []
      : [{ number: Number(number), text: title, at: ts }];
  });
}

/** The state of a step that has begun. Steps run one after another, and those of the cache come first. */
export function stateOf(number: number, { status, steps_done, steps_cached }: Build): StepState {
  if (number <= steps_cached) return 'cached';
  if (number <= steps_done) return 'done';
  return status === 'failed' || status === 'cancelled' ? status : 'building';
}
