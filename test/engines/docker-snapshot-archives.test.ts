import { once } from 'node:events';
import { request } from 'node:http';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readInstance } from '../../src/db/instance-queries.js';
import type { Client } from '../support/client.js';
import { describeDocker, docker, IMAGE } from '../support/docker.js';
import { savedFiles } from '../support/image-files.js';
import { startInside, type Inside } from '../support/inside.js';
import { until } from '../support/polling.js';
import { layerOf } from '../support/private-registry.js';
import { exportOf, filesOf, imageIn, importTo, packFiles, sha256Of } from '../support/snapshot-archives.js';
import { capture } from '../support/snapshots.js';

const LONG = 'n'.repeat(200);
/** A directory that is replaced, a deleted file, links, bits, a hole, and names that tar writes in other headers. */
const ODD = `set -e
mkdir -p /srv/${LONG}/${LONG} && echo deep > /srv/${LONG}/${LONG}/file
echo linked > /srv/first && ln /srv/first /srv/second && ln -s ../srv/first /srv/symbolic
cp /bin/busybox /srv/tool 2>/dev/null || cat /bin/busybox > /srv/tool
chmod 6755 /srv/tool && chmod 1777 /srv
dd if=/dev/zero of=/srv/hole bs=1 count=1 seek=1048576 2>/dev/null
printf 'x' > "/srv/$(printf 'sp ace\\n\\303\\244')"
rm /bin/tail && rm -r /etc/replaced && mkdir /etc/replaced && echo new > /etc/replaced/new`;
const SHOW = `cat /srv/${LONG}/${LONG}/file /srv/symbolic
[ /srv/first -ef /srv/second ] && echo same
ls -l /srv/tool | head -c 10; echo
ls -s /srv/hole >/dev/null && ls -l /srv/hole | tr -s ' ' | head -c 80 >/dev/null && echo hole
ls /etc/replaced
test -e /bin/tail || echo gone`;

describeDocker('archives of snapshots', () => {
  let inside: Inside;
  let other: Client;
  let instanceId: string;
  beforeAll(async () => {
    inside = await startInside({ settings: { volumePurgeAfterMs: 0 } });
    other = await inside.service.newOrg();
    ({ id: instanceId } = await readInstance(inside.service.ctx.pool));
  });
  afterAll(async () => {
    for (const client of [inside.client, other]) {
      for (const kind of ['snapshots', 'sandboxes']) {
        const { body } = await client.get(`/v1/${kind}`, { limit: 100 });
        for (const { id } of body.data) await client.delete(`/v1/${kind}/${id}`);
      }
    }
    await until(ownImages, (images) => images.length === 0, 60_000);
    await inside.close();
  });

  async function ownImages() {
    return docker.listImages({ filters: { label: [`dev.sandkeep.instance=${instanceId}`] } });
  }

  const exec = async (client: Client, id: string, script: string) => {
    const { body, text } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] });
    expect(body.exit_code, text).toBe(0);
    return body.stdout as string;
  };
  const startFrom = async (client: Client, snapshot: string, name: string) => {
    const request = {
      name,
      image: { type: 'disk_snapshot', id: snapshot },
      resources: { vcpus: 1, memory_mib: 64 },
      runtime: { cmd: ['sleep', '600'] },
    };
    const { body, text } = await client.post('/v1/sandboxes', request, { start: true, wait_for: 'running' });
    expect(body.status, text).toBe('running');
    return body.id as string;
  };

  test('a snapshot with odd files is the same in another organization, byte for byte', async () => {
    const id = await inside.start('source', {
      env: [{ key: 'TOKEN', value: 'a-secret-value', secret: true }],
    });
    await exec(inside.client, id, 'mkdir -p /etc/replaced && echo old > /etc/replaced/old');
    const first = await capture(inside.client, id, 'below');
    const middle = await startFrom(inside.client, first['id'], 'middle');
    await exec(inside.client, middle, ODD);
    const { result } = await capture(inside.client, middle, 'odd', { record_integrity: true });
    const expected = await exec(inside.client, middle, SHOW);
    expect(expected).toBe('deep\nlinked\nsame\n-rwsr-sr-x\nhole\nnew\ngone\n');

    const exported = await exportOf(inside.client, 'by-name/odd');
    expect(exported.status).toBe(200);
    expect(exported.headers.get('content-length')).toBe(String(exported.bytes.length));
    const { digest, manifest, config } = await imageIn(exported.bytes);
    expect(exported.headers.get('docker-content-digest')).toBe(digest);
    expect(config.rootfs.diff_ids.at(-1)).toBe(result.manifest.state.upper.integrity.digest);
    for (const secret of ['a-secret-value', 'dev.sandkeep.instance', inside.client.org.id])
      expect(JSON.stringify(config)).not.toContain(secret);
    // The engine writes the same archive again, and the service finds its layers without another look.
    expect((await exportOf(inside.client, result.id)).bytes.equals(exported.bytes)).toBe(true);

    const imported = await importTo(other, exported.bytes, { name: 'odd' });
    expect(imported.status, imported.text).toBe(200);
    const copy = await startFrom(other, 'odd', 'copy');
    expect(await exec(other, copy, SHOW)).toBe(expected);
    const again = await imageIn((await exportOf(other, imported.body.id)).bytes);
    expect(again.manifest.layers).toEqual(manifest.layers);
    const { body: quota } = await other.get('/v1/quotas');
    expect(quota.snapshot_gib_used).toBeCloseTo(imported.body.size_bytes / 1024 ** 3, 9);
  });

  test('"docker load" takes an export, with its defaults and its layers', async () => {
    const { bytes } = await exportOf(inside.client, 'by-name/odd');
    const { config } = await imageIn(bytes);
    const progress = await docker.loadImage(Readable.from([bytes], { objectMode: false }));
    await new Promise((resolve) => docker.modem.followProgress(progress, resolve));
    const loaded = docker.getImage('sandkeep-export:odd');
    const { RootFS, Config } = await loaded.inspect();
    expect(RootFS.Layers).toEqual(config.rootfs.diff_ids);
    expect(Config.Env ?? []).toEqual(config.config.Env ?? []);
    await loaded.remove();
  });

  test('capabilities of files and owners stay in a layer that came from elsewhere', async () => {
    const pax = {
      'SCHILY.xattr.security.capability': '\u0001\0\0\u0002\0\u0004\0\0\0\0\0\0\0\0\0\0\0\0\0\0',
    };
    const above = await layerOf({}, [
      { name: 'srv/able', type: 'file', mode: 0o755, uid: 1234, gid: 99, pax },
    ]);
    const files = await filesOf((await exportOf(inside.client, 'by-name/below')).bytes);
    const { manifest } = await imageIn((await exportOf(inside.client, 'by-name/below')).bytes);
    const below = manifest.layers.map((one: any) => files.get(`blobs/${one.digest.replace(':', '/')}`));
    const archive = packFiles(savedFiles([...below, above], { config: { Cmd: ['sleep', '600'] } }));
    const imported = await importTo(other, archive, { name: 'able' });
    expect(imported.status, imported.text).toBe(200);
    const again = await imageIn((await exportOf(other, 'by-name/able')).bytes);
    expect(again.manifest.layers.at(-1).digest).toBe(sha256Of(above));
    const id = await startFrom(other, 'able', 'able');
    expect(await exec(other, id, 'ls -ln /srv/able')).toMatch(/ 1234 +99 /);
  });

  test('names in an archive change no other image', async () => {
    const { body: victim } = await inside.client.get('/v1/snapshots/by-name/odd');
    const names = [IMAGE, `sandkeep/snapshot:${victim.id}`, 'sandkeep/pulled:x', 'hostile:1'];
    const idOf = async (name: string) =>
      docker
        .getImage(name)
        .inspect()
        .then(
          ({ Id }) => Id,
          () => null,
        );
    const before = await Promise.all(names.map(idOf));
    const layer = await layerOf({ hostile: 'x' });
    const labels = {
      'dev.sandkeep.instance': instanceId,
      'dev.sandkeep.org': inside.client.org.id,
      'dev.sandkeep.snapshot': victim.id,
      'dev.sandkeep.base.bytes': '999999999',
    };
    const config = { Labels: labels, OnBuild: ['RUN true'], Healthcheck: { Test: ['CMD', 'true'] } };
    const archive = packFiles(savedFiles([layer], { names, config }));
    const { status, body, text } = await importTo(other, archive, { name: 'hostile' });
    expect(status, text).toBe(200);
    expect(await Promise.all(names.map(idOf))).toEqual(before);
    const made = await docker.getImage(`sandkeep/snapshot:${body.id}`).inspect();
    expect(made.RepoTags).toEqual([`sandkeep/snapshot:${body.id}`]);
    expect(made.Config.Labels).toMatchObject({
      'dev.sandkeep.org': other.org.id,
      'dev.sandkeep.snapshot': body.id,
      'dev.sandkeep.base.bytes': '0',
    });
    expect(made.Config).not.toHaveProperty('Healthcheck.Test');
    expect(body.size_bytes).toBe(made.Size);
    // The same layer at many places is counted as often as the engine unpacks it.
    expect((await inside.client.get(`/v1/snapshots/${victim.id}`)).body).toEqual(victim);
  });

  test('a client that leaves ends its export and its import, and the engine keeps nothing', async () => {
    const { hostname, port } = new URL(other.url);
    const headers = { authorization: `Bearer ${other.key}` };
    const leaving = request({ hostname, port, headers, path: '/v1/snapshots/by-name/odd/export' });
    leaving.on('error', () => undefined).end();
    const [answer] = await once(leaving, 'response');
    await once(answer, 'readable');
    leaving.destroy();
    const { bytes } = await exportOf(other, 'by-name/odd');
    const images = (await ownImages()).length;
    const sending = request({
      hostname,
      port,
      headers: { ...headers, 'content-length': bytes.length },
      method: 'POST',
      path: '/v1/snapshots/import?name=left',
    });
    sending.on('error', () => undefined);
    sending.end(bytes);
    await once(sending, 'finish');
    sending.destroy();
    await until(
      async () => (await other.get('/v1/snapshot-operations')).body.data,
      (all) => all.every((one: any) => one.name !== 'left' || one.status !== 'in_progress'),
      60_000,
    );
    // It was complete before the client left, or nothing of it is there.
    const surplus = async () => {
      const { status } = await other.get('/v1/snapshots/by-name/left');
      return (await ownImages()).length - images - (status === 200 ? 1 : 0);
    };
    expect(await until(surplus, (count) => count === 0, 60_000)).toBe(0);
  });
});
