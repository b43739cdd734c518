import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { until } from '../../support/polling.js';
import { cleanUp, makeFolder, serve, stop } from '../../support/processes.js';
import { smallRequest } from '../../support/sandbox-requests.js';

const MISSING = spawnSync('prlimit', ['--version']).error !== undefined;
const reason = 'SKIPPED: there is no prlimit (on Debian: apt-get install util-linux)';
if (MISSING) console.warn(`the test of missing descriptors is ${reason}`);

test.skipIf(MISSING)(
  `a process without a free descriptor refuses with 503, and serves everything once it has some${MISSING ? ` — ${reason}` : ''}`,
  async () => {
    const folder = makeFolder();
    const service = await serve(folder);
    const headers = { authorization: `Bearer ${service.firstKey}`, 'content-type': 'application/json' };
    const limit = (count: number) => execFileSync('prlimit', [`--pid=${service.pid}`, `--nofile=${count}:`]);
    // The soft limit. Raising the hard one needs a capability.
    const volume = (await (await fetch(`${service.url}/v1/volumes/default`, { headers })).json()) as {
      id: string;
    };
    const path = `${service.url}/v1/volumes/${volume.id}/files`;
    let count = 0;
    const ask = () => {
      count += 1;
      const body = JSON.stringify(smallRequest(`box-${count}`));
      // Undefined: a connection that could not be accepted.
      return Promise.all(
        [
          ...[1, 2, 3].map(() => fetch(`${service.url}/v1/sandboxes`, { headers })),
          fetch(`${service.url}/v1/sandboxes?start=true`, { method: 'POST', headers, body }),
          fetch(path, {
            headers: { ...headers, 'x-msb-file-path': 'Lw' },
          }),
        ].map((answer) =>
          answer.then(
            ({ status }) => status,
            () => undefined,
          ),
        ),
      );
    };
    expect(await ask()).toEqual([200, 200, 200, 200, 200]);

    const before = descriptorLimit(service.pid);
    // Open connections to the database and to clients stay; nothing more can be opened.
    limit(readdirSync(`/proc/${service.pid}/fd`).length);
    const answers: (number | undefined)[] = [];
    for (let round = 0; round < 10; round += 1) answers.push(...(await ask()));
    const others = answers.filter((status) => ![undefined, 200, 503].includes(status));
    expect([others, service.err()]).toEqual([[], expect.any(String)]);

    limit(before);
    await until(ask, (statuses) => statuses.every((status) => status === 200));
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
    expect(await stop(service)).toBe(0);
    await cleanUp(folder);
  },
  120_000,
);

function descriptorLimit(pid: number): number {
  const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, 'utf8'))!;
  return Number(soft);
}
