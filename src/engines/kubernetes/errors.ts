import { parseJson } from '../../lib/json.js';

export const FORBIDDEN = 403;
export const NOT_FOUND = 404;
export const CONFLICT = 409;
export const GONE = 410;
export const INVALID = 422;

/** The HTTP status of an answer of the API server; undefined when it gave none. */
export function statusOf(error: unknown): number | undefined {
  const { code, statusCode } = error as { code?: unknown; statusCode?: number };
  return typeof code === 'number' ? code : statusCode;
}

/** In the words of the API server. */
export function clusterMessage(error: unknown): string {
  const { body, message } = error as { body?: unknown; message?: string };
  const said =
    typeof body === 'string' ? parseMessage(body) : (body as { message?: string } | undefined)?.message;
  return said ?? message ?? String(error);
}

export function ignoreStatus(...statuses: number[]): (error: unknown) => undefined {
  return (error) => {
    if (!statuses.includes(statusOf(error) ?? 0)) throw error;
    return undefined;
  };
}

function parseMessage(body: string): string | undefined {
  return (parseJson(body) as { message?: string } | null | undefined)?.message;
}
