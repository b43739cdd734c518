import { text } from 'node:stream/consumers';
import { pack, type Headers } from 'tar-stream';
import type { Answer } from './answer.js';
import type { Client } from './client.js';
import { until } from './polling.js';

type Template = Record<string, any>;
/** Files with their content, or other entries. */
export type Entries = Record<string, string | Partial<Headers>>;

/** An archive of ASCII texts, as a text. */
export async function archiveOf(entries: Entries): Promise<string> {
  const archive = pack();
  for (const [name, entry] of Object.entries(entries)) {
    if (typeof entry === 'string') archive.entry({ name }, entry);
    else archive.entry({ name, ...entry });
  }
  archive.finalize();
  return text(archive);
}

/** Requests a build. `body`: a Dockerfile, or the entries of a context. */
export async function requestBuild(
  client: Client,
  tag: string,
  body: string | Entries,
  query: Record<string, string | number | boolean> = {},
): Promise<Answer> {
  return client.post('/v1/templates', typeof body === 'string' ? body : await archiveOf(body), {
    tag,
    ...query,
  });
}

/** For a test that builds. A build starts a sandbox for each group of steps, and captures it. */
export const BUILDS_MS = 600_000;

/** Waits until a build has ended. */
export async function endedBuild(client: Client, id: string): Promise<Template> {
  return until(
    async () => (await client.get(`/v1/templates/${id}`)).body,
    ({ status }) => status !== 'queued' && status !== 'building',
    400_000,
  );
}

/** Builds, and returns the template when the build has ended. */
export async function build(...args: Parameters<typeof requestBuild>): Promise<Template> {
  const { status, body, text: answer } = await requestBuild(...args);
  if (status !== 200) throw new Error(`no template is built: ${answer}`);
  return endedBuild(args[0], body.id);
}

/** The events of the log of a build that has ended. */
export async function logOf(client: Client, id: string): Promise<{ source: string; text: string }[]> {
  const answer = await fetch(`${client.url}/v1/templates/${id}/log`, {
    headers: { authorization: `Bearer ${client.key}` },
  });
  const events = (await answer.text()).split('\n\n').filter((event) => event.startsWith('event: log\n'));
  return events.map((event) => JSON.parse(event.split('\ndata: ')[1]!) as { source: string; text: string });
}
