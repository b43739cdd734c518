/**
 * The load generator, a separate process. It gets jobs from its parent, one at a time, and answers with their results.
 */
import { Connection } from './connection.js';
import type { Job, JobResult } from './generate.js';

process.on('message', (job: Job) => {
  run(job).then(
    (result) => process.send!(result),
    (error: unknown) => process.send!({ error: String(error) }),
  );
});

/** Makes unused names and keys. */
let unique = Date.now() * 1_000;

async function run({ targets, connections, millis, requests, once }: Job): Promise<JobResult> {
  const open = await Promise.all(
    Array.from({ length: connections }, async (_, index) => {
      const { host, port } = targets[index % targets.length]!;
      return Connection.open(host, port);
    }),
  );
  const texts = requests.map((each) => toText(each));
  const latencies: number[] = [];
  const begun = performance.now();
  const end = begun + millis;
  let next = 0;
  async function work(connection: Connection): Promise<void> {
    for (;;) {
      const asked = performance.now();
      if (asked >= end || (once && next >= texts.length)) return;
      const index = next % texts.length;
      next += 1;
      const status = await connection.ask(texts[index]!());
      latencies.push(performance.now() - asked);
      if (status < 200 || status > 299) {
        throw new Error(`${requests[index]!.method} ${requests[index]!.path}\n${connection.beginning}`);
      }
    }
  }
  try {
    await Promise.all(open.map(work));
  } finally {
    for (const connection of open) connection.close();
  }
  const took = performance.now() - begun;
  latencies.sort((a, b) => a - b);
  const at = (part: number) =>
    latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))]!;
  return { count: latencies.length, millis: took, p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}

/** Each request replaces `{unique}` in its headers and its body by a new number. */
function toText({ method, path, headers, body }: Job['requests'][number]): () => Buffer | string {
  const write = (content: string) => {
    const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(content)) };
    const lines = Object.entries({ host: 'bench', ...headers, ...length }).map(
      ([name, value]) => `${name}: ${value}`,
    );
    return `${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${content}`;
  };
  if (!JSON.stringify([headers, body]).includes('{unique}')) {
    const ready = Buffer.from(write(body ?? ''));
    return () => ready;
  }
  // The placeholder has the length of the number, so the length of the body stays the same.
  const template = write((body ?? '').replaceAll('{unique}', '0'.repeat(String(unique).length)));
  const head = template.slice(0, template.indexOf('\r\n\r\n') + 4);
  return () => {
    const number = String((unique += 1));
    return `${head}${body ?? ''}`.replaceAll('{unique}', number);
  };
}
