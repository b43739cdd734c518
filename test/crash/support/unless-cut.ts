/** The connection of a request breaks with the service. */
export function unlessCut(error: unknown): undefined {
  if (!(error instanceof TypeError)) throw error;
  return undefined;
}
