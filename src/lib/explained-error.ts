/** An error whose message tells the operator what to do. It is printed without a stack. */
export class ExplainedError extends Error {}
