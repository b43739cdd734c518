/**
 * Keeps a subquery apart from the query around it, so that each outer row becomes one index probe. Without it the planner may
 * turn the probes into a join that reads a whole table: it has no statistics of new rows, and knows no parameters.
 * `npm run bench -- hints` prints the time of each query with and without it.
 */
export const SEPARATE = 'offset 0';
