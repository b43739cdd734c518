/**
 * The value of a JSON text that others wrote. Undefined: the text is no JSON. The message of JSON.parse would quote
 * the text, which may hold secrets. `exact-json.ts` reads integers beyond 2^53 - 1. `http/read-json.ts` bounds the
 * work for the body of a request.
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
