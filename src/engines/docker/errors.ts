export const NOT_MODIFIED = 304;
export const FORBIDDEN = 403;
export const NOT_FOUND = 404;
export const CONFLICT = 409;
export const SERVER_ERROR = 500;
export const UNAVAILABLE = 503;
/** The answers to the removal of an object that is gone, or that the engine is removing. */
export const ALREADY_REMOVED = [NOT_FOUND, CONFLICT];

export function statusOf(error: unknown): number | undefined {
  return (error as { statusCode?: number }).statusCode;
}

export function engineMessage(error: unknown): string {
  const { json, message } = error as { json?: { message?: string }; message?: string };
  return json?.message ?? message ?? String(error);
}

export function ignoreStatus(...statuses: number[]): (error: unknown) => undefined {
  return (error) => {
    if (!statuses.includes(statusOf(error) ?? 0)) throw error;
    return undefined;
  };
}
