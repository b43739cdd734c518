/**
 * Keeps a subquery apart from the query around it, so that each outer row is one index probe. Otherwise the planner may
 * choose a join that reads a whole table. A page with a rare and a common label takes 0.5 ms with it and 5.5 ms
 * without, among 100,000 sandboxes. `npm run bench -- hints` prints each query both ways.
 */
export const SEPARATE = 'offset 0';
