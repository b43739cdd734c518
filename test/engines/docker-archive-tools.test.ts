import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeDocker } from '../support/docker.js';
import { startInside, type Inside } from '../support/inside.js';
import { exportOf, imageIn, importTo } from '../support/snapshot-archives.js';
import { capture } from '../support/snapshots.js';

/** The end of the name of a test, and whether it is skipped. A machine without the program says so. */
function needs(program: string): { isAbsent: boolean; note: string } {
  if (spawnSync(program, ['--version']).status === 0) return { isAbsent: false, note: '' };
  const note = ` — SKIPPED: there is no ${program} (on Debian: apt-get install ${program})`;
  console.warn(`archives of snapshots in ${program}${note}`);
  return { isAbsent: true, note };
}

/** Independent readers of OCI image layouts. */
const SKOPEO = needs('skopeo');
const UMOCI = needs('umoci');

const WRITE = `set -e
mkdir -p /srv/deep && echo deep > /srv/deep/file
ln /srv/deep/file /srv/second && ln -s deep/file /srv/symbolic
busybox chown 1234:99 /srv/deep/file && chmod 4750 /srv/deep/file && chmod 1777 /srv
rm /bin/tail && rm -r /etc/replaced && mkdir /etc/replaced && echo new > /etc/replaced/new`;

describeDocker('archives of snapshots in independent tools', () => {
  let inside: Inside;
  let folder: string;
  let archive: string;
  let bytes: Buffer;
  beforeAll(async () => {
    inside = await startInside({ settings: { volumePurgeAfterMs: 0 } });
    folder = mkdtempSync(join(tmpdir(), 'sandkeep-tools-'));
    archive = join(folder, 'export.tar');
    const id = await inside.start('source', {
      env: [{ key: 'TOKEN', value: 'a-secret-value', secret: true }],
    });
    const run = async (script: string) => {
      const { body, text } = await inside.client.post(`/v1/sandboxes/${id}/exec`, {
        cmd: 'sh',
        args: ['-c', script],
      });
      expect(body.exit_code, text).toBe(0);
    };
    await run('mkdir -p /etc/replaced && echo old > /etc/replaced/old');
    const { id: below } = await capture(inside.client, id, 'below');
    const request = {
      name: 'above',
      image: { type: 'disk_snapshot', id: below },
      resources: { vcpus: 1, memory_mib: 64 },
      runtime: { cmd: ['sleep', '600'] },
    };
    const { body } = await inside.client.post('/v1/sandboxes', request, { start: true, wait_for: 'running' });
    const written = await inside.client.post(`/v1/sandboxes/${body.id}/exec`, {
      cmd: 'sh',
      args: ['-c', WRITE],
    });
    expect(written.body.exit_code, written.text).toBe(0);
    await capture(inside.client, body.id, 'odd', { labels: { team: 'ml' } });
    const exported = await exportOf(inside.client, 'by-name/odd');
    expect(exported.status).toBe(200);
    bytes = exported.bytes;
    writeFileSync(archive, bytes);
  });
  afterAll(async () => {
    for (const kind of ['snapshots', 'sandboxes']) {
      const { body } = await inside.client.get(`/v1/${kind}`, { limit: 100 });
      for (const { id } of body.data) await inside.client.delete(`/v1/${kind}/${id}`);
    }
    await inside.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const skopeo = (...args: string[]) =>
    execFileSync('skopeo', ['--insecure-policy', ...args], {
      encoding: 'utf8',
      env: { ...process.env, TMPDIR: folder },
    });

  test.skipIf(SKOPEO.isAbsent)(
    `skopeo reads an export, checks each digest, and writes a layout that an import takes${SKOPEO.note}`,
    async () => {
      const { digest, manifest, config } = await imageIn(bytes);
      const shown = JSON.parse(skopeo('inspect', `oci-archive:${archive}`));
      expect(shown).toMatchObject({ Digest: digest, Os: 'linux', Architecture: config.architecture });
      expect(shown.Layers).toEqual(manifest.layers.map((layer: any) => layer.digest));
      expect(JSON.parse(skopeo('inspect', '--config', `oci-archive:${archive}`)).rootfs).toEqual(
        config.rootfs,
      );
      expect(JSON.parse(skopeo('inspect', '--raw', `oci-archive:${archive}`)).annotations).toEqual(
        manifest.annotations,
      );

      // A copy reads every blob, and compares it with its digest.
      const copied = join(folder, 'copied.tar');
      skopeo('copy', '--preserve-digests', `oci-archive:${archive}`, `oci-archive:${copied}:copied`);
      const imported = await importTo(inside.client, readFileSync(copied), { name: 'by-skopeo' });
      expect(imported.status, imported.text).toBe(200);
      const again = await imageIn((await exportOf(inside.client, 'by-name/by-skopeo')).bytes);
      expect(again.config.rootfs).toEqual(config.rootfs);

      // The archive of docker save that skopeo writes.
      const saved = join(folder, 'saved.tar');
      skopeo('copy', `oci-archive:${archive}`, `docker-archive:${saved}:kept:1`);
      const second = await importTo(inside.client, readFileSync(saved), { name: 'saved' });
      expect(second.status, second.text).toBe(200);

      // It notices a changed byte, so the comparison above means something.
      const broken = join(folder, 'broken.tar');
      const at = bytes.indexOf('deep\n');
      const changed = Buffer.from(bytes);
      changed[at] = 'D'.charCodeAt(0);
      writeFileSync(broken, changed);
      expect(at).toBeGreaterThan(0);
      expect(() => skopeo('copy', `oci-archive:${broken}`, `dir:${join(folder, 'broken')}`)).toThrow(
        /[Dd]igest/,
      );
    },
  );

  test.skipIf(UMOCI.isAbsent)(`umoci unpacks an export to the files of the sandbox${UMOCI.note}`, () => {
    const layout = join(folder, 'layout');
    mkdirSync(layout);
    execFileSync('tar', ['-xf', archive, '-C', layout]);
    const index = JSON.parse(readFileSync(join(layout, 'index.json'), 'utf8'));
    const tag: string = index.manifests[0].annotations['org.opencontainers.image.ref.name'];
    const bundle = join(folder, 'bundle');
    const rootless = process.getuid!() === 0 ? [] : ['--rootless'];
    execFileSync('umoci', ['unpack', ...rootless, '--image', `${layout}:${tag}`, bundle], {
      stdio: 'pipe',
    });
    const root = join(bundle, 'rootfs');
    const file = lstatSync(join(root, 'srv/deep/file'));
    expect(readFileSync(join(root, 'srv/second'), 'utf8')).toBe('deep\n');
    expect(lstatSync(join(root, 'srv/second')).ino).toBe(file.ino);
    expect(readlinkSync(join(root, 'srv/symbolic'))).toBe('deep/file');
    if (rootless.length === 0) {
      expect([file.uid, file.gid, file.mode & 0o7777]).toEqual([1234, 99, 0o4750]);
      expect(lstatSync(join(root, 'srv')).mode & 0o7777).toBe(0o1777);
    }
    expect(existsSync(join(root, 'bin/tail'))).toBe(false);
    expect(existsSync(join(root, 'bin/busybox'))).toBe(true);
    expect(readdirSync(join(root, 'etc/replaced'))).toEqual(['new']);
    // No secret is in the configuration.
    expect(JSON.stringify(JSON.parse(readFileSync(join(bundle, 'config.json'), 'utf8')))).not.toContain(
      'a-secret-value',
    );
  });
});
