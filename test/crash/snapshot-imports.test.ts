import { randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { expect, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import { makeClient } from '../support/client.js';
import { describeDocker, docker } from '../support/docker.js';
import { savedFiles } from '../support/image-files.js';
import { until } from '../support/polling.js';
import { layerOf } from '../support/private-registry.js';
import { cleanUp, inDatabase, launch, makeFolder, ready, stop, type Served } from '../support/processes.js';
import { exportOf, importTo, packFiles } from '../support/snapshot-archives.js';

/** After the last byte is sent: in the checks, in the engine, and perhaps at the end. */
const KILLED_AFTER_MS = [0, 60, 200];

describeDocker('a service that is killed in the import of a snapshot', () => {
  test('leaves no image, no operation in progress, and a name that is free', async () => {
    const folder = makeFolder();
    const dataDir = `${folder}/data`;
    const options = ['--runtime', 'docker', '--docker-network', 'none', '--preview-host', 'none'];
    const serve = async (): Promise<Served> =>
      ready(launch(['serve', '--json', '--port', '0', '--data-dir', dataDir, ...options]), dataDir);
    const noise = randomBytes(12 * 1024 * 1024).toString('latin1');
    const archive = packFiles(savedFiles([await layerOf({ noise })]));
    let instance = '';
    /** Other tests make images meanwhile, so only those of this installation count. */
    const snapshotImages = async () =>
      (await docker.listImages({ filters: { label: [`dev.sandkeep.instance=${instance}`] } }))
        .flatMap(({ RepoTags }) => RepoTags ?? [])
        .filter((name) => name.startsWith('sandkeep/snapshot:'));
    try {
      let served = await serve();
      const key = served.firstKey!;
      instance = await inDatabase(dataDir, async (database) => {
        const { rows } = await database.query<{ id: string }>('select id from instance');
        return rows[0]!.id;
      });
      const clientOf = ({ url }: Served) =>
        makeClient(url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
      for (const [round, delay] of KILLED_AFTER_MS.entries()) {
        const { hostname, port } = new URL(served.url);
        const sending = request({
          hostname,
          port,
          method: 'POST',
          path: `/v1/snapshots/import?name=killed-${round}`,
          headers: { authorization: `Bearer ${key}`, 'content-length': archive.length },
        });
        sending.on('error', () => undefined);
        await new Promise<void>((resolve) => sending.end(archive, resolve));
        await sleep(delay);
        served.process.kill('SIGKILL');
        await served.exited;
        served = await serve();
      }
      const client = clientOf(served);
      const { body } = await until(
        async () => client.get('/v1/snapshot-operations', { limit: 100 }),
        ({ body: found }) => found.data.every((one: any) => one.completed_at !== null),
        120_000,
      );
      const made = body.data.filter((one: any) => one.status === 'succeeded');
      for (const one of body.data) {
        if (one.status === 'failed') expect(one.error.code).toBe('interrupted');
      }
      await until(
        snapshotImages,
        (names) =>
          names.toSorted().join() ===
          made
            .map((one: any) => `sandkeep/snapshot:${one.id}`)
            .toSorted()
            .join(),
        60_000,
      );
      const { body: quota } = await client.get('/v1/quotas');
      expect(quota.snapshots).toBe(made.length);
      const again = await importTo(client, archive, { name: 'again' });
      expect(again.status, again.text).toBe(200);
      expect((await exportOf(client, 'again')).status).toBe(400);
      expect((await exportOf(client, 'by-name/again')).status).toBe(200);
      await stop(served);
    } finally {
      await cleanUp(folder);
      for (const name of await snapshotImages()) await docker.getImage(name).remove();
    }
  });
});
