import { nearestName } from '../lib/nearest.js';
import { CLIENT_VARIABLES, PREFIX, variableOf } from './names.js';
import { OPTION_NAMES } from './options.js';

/** Variables of the tests, which the commands that they start inherit. */
const TEST_PREFIX = `${PREFIX}TEST_`;

/** A warning for each variable with the prefix of Sandkeep that nothing reads. */
export function unknownVariables(env: NodeJS.ProcessEnv): string[] {
  const known = OPTION_NAMES.map(variableOf);
  const clients = Object.values(CLIENT_VARIABLES);
  const byRest = new Map(known.map((variable) => [withoutPrefix(variable), variable]));
  return Object.keys(env)
    .filter((variable) => variable.startsWith(PREFIX) && !variable.startsWith(TEST_PREFIX))
    .filter((variable) => !known.includes(variable) && !clients.includes(variable))
    .toSorted()
    .map((variable) => {
      // The prefix is left out, as it makes every two names similar.
      const nearest = byRest.get(nearestName(withoutPrefix(variable), [...byRest.keys()]) ?? '');
      const hint = nearest === undefined ? 'docs/configuration.md lists them' : `did you mean ${nearest}?`;
      return `the environment variable ${variable} is not an option; ${hint}`;
    });
}

function withoutPrefix(variable: string): string {
  return variable.startsWith(PREFIX) ? variable.slice(PREFIX.length) : variable;
}
