/** A failure that says what to do about it: shown to the operator as it is, without a stack. */
export class ExplainedError extends Error {}
