import { sentence } from './advice';
import type { Problem } from './api';

interface Faults {
  /** The message for a field, if the refusal is about it. */
  at: (field: string) => string | undefined;
  /** A refusal that is about none of the fields. */
  rest: Problem | undefined;
}

/** The refusal of a form by the field that it names. `fields`: those that the form shows. */
export function faultsOf(problem: Problem | undefined, fields: readonly string[]): Faults {
  const named = nameIn(problem);
  const field = fields.find(
    (each) =>
      named === each || named?.startsWith(`${each}.`) === true || named?.startsWith(`${each}[`) === true,
  );
  return {
    at: (each) => (each === field && problem !== undefined ? sentence(problem.message) : undefined),
    rest: field === undefined ? problem : undefined,
  };
}

function nameIn(problem: Problem | undefined): string | undefined {
  if (problem?.code === 'name_already_exists') return 'name';
  const { field, parameter } = problem?.details ?? {};
  return [field, parameter].find((name) => typeof name === 'string');
}
