/** The address of the service or of a floor, and the key of an organization. */
export interface Api {
  host: string;
  port: number;
  key: string;
  orgId?: string;
}

/** The text of an answer. Throws unless it is a success. */
export async function ask(
  { host, port, key }: Api,
  path: string,
  { headers, ...init }: { method?: string; body?: string; headers?: Record<string, string> } = {},
): Promise<string> {
  const response = await fetch(`http://${host}:${port}${path}`, {
    ...init,
    headers: { ...headers, authorization: `Bearer ${key}` },
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path} was answered with ${response.status}: ${text}`);
  return text;
}
