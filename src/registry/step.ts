/** Runs work on a few bytes when an iteration of the event loop has time for it. */
export type Step = <T>(work: () => T) => Promise<T>;
