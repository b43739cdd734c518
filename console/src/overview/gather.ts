/** A busy organization changes many times a second, and the overview asks for much. */
export const GATHER_MS = 2000;
