/**
 * An answer of an engine that means "no room": a later start may find some, so the start waits with these words. Every
 * other answer is a refusal.
 */
export interface NoRoomAnswer {
  said: RegExp;
  /** Default: those of the engine, which are fit for callers. */
  words?: string;
}

/** Undefined: the answer does not mean that there is no room. */
export function noRoomWords(known: readonly NoRoomAnswer[], answer: string): string | undefined {
  const found = known.find(({ said }) => said.test(answer.trim().replace(/: unknown$/, '')));
  return found && (found.words ?? answer);
}
