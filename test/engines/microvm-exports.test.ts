import { Buffer } from 'node:buffer';
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import tar, { type Headers } from 'tar-stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { exportsDirectory, placesIn, snapshotsDirectory } from '../../src/engines/microvm/places.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { makeClient, type Client } from '../support/client.js';
import { describeDocker } from '../support/docker.js';
import { startInside } from '../support/inside.js';
import { layoutFiles } from '../support/image-files.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm, shIn } from '../support/microvm/service.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { exportOf, filesOf, imageIn, importTo, packFiles } from '../support/snapshot-archives.js';
import { capture } from '../support/snapshots.js';

const RUNNING = { start: true, wait_for: 'running', wait_timeout: 120 };
const SMALL = { resources: { vcpus: 1, memory_mib: 192 }, network: { enabled: false } };
const LONG = 'n'.repeat(200);
const DEEP = `srv/${LONG}/${LONG}`;

const CHANGES = `set -e
rm /bin/tail; mkdir /srv/replaced; echo new > /srv/replaced/new
echo one > /srv/one; ln /srv/one /srv/two; chown 1000:2000 /srv/one; chmod 6755 /srv/one
mkfifo /srv/pipe; mknod /srv/null c 1 3; ln -s one /srv/link; echo more >> /etc/passwd
mkdir -p /srv/${LONG}/${LONG}; echo deep > /srv/${LONG}/${LONG}/file
head -c 3000000 /dev/urandom > /srv/data; truncate -s 20M /srv/hole; touch -d '2001-02-03 04:05' /srv/data`;
/** Each file that does not belong to a run, in few processes: emulated ones are slow. */
const SHOW = `cd /; find bin etc srv ! -name hosts ! -name hostname ! -name resolv.conf ! -name machine-id \\
! -name mtab ! -name etc |
sort > /tmp/names; xargs stat -c '%n %f %u %g %t %T %Y %N' < /tmp/names
find srv etc/passwd -type f -exec md5sum {} + | sort; rm /tmp/names`;

/** The library reads and writes these records, and its types lack them. */
type Fields = Headers & { pax?: Record<string, string> };
type Entry = [fields: Fields, content?: Buffer];

const at = new Date('2001-02-03T04:05:06Z');
const owned = { mode: 0o644, uid: 0, gid: 0, mtime: at };
/** Directories come before what is in them, as in an export. */
const ODD: Entry[] = [
  [{ ...owned, name: './', type: 'directory', mode: 0o711, uid: 5, gid: 6 }],
  [{ ...owned, name: 'bits', mode: 0o6755 }, Buffer.from('setuid')],
  [{ ...owned, name: 'block', type: 'block-device', mode: 0o600, devmajor: 259, devminor: 70_000 }],
  [{ ...owned, name: 'empty' }, Buffer.alloc(0)],
  [{ ...owned, name: 'first', uid: 3_000_000, gid: 4_000_000 }, Buffer.alloc(100_001, 'linked')],
  [{ ...owned, name: 'second', type: 'link', linkname: 'first', uid: 3_000_000, gid: 4_000_000 }],
  [{ ...owned, name: 'null', type: 'character-device', mode: 0o666, devmajor: 1, devminor: 3 }],
  [{ ...owned, name: 'pipe', type: 'fifo', mode: 0o640 }],
  [{ ...owned, name: 'line\nbreak ä' }, Buffer.from('odd name')],
  [{ ...owned, name: 'marked', pax: { 'SCHILY.xattr.user.kind': 'odd = value' } }, Buffer.from('x')],
  [{ ...owned, name: 'old', pax: { mtime: '-3.25' } }, Buffer.from('before 1970')],
  [{ ...owned, name: 'precise', pax: { mtime: '1700000000.000000001' } }, Buffer.from('a fraction')],
  [{ ...owned, name: 'srv/', type: 'directory', mode: 0o1777 }],
  [{ ...owned, name: `srv/${LONG}/`, type: 'directory', mode: 0o700 }],
  [{ ...owned, name: `${DEEP}/`, type: 'directory', mode: 0o750 }],
  [{ ...owned, name: `${DEEP}/file` }, Buffer.alloc(70_000, 7)],
  [{ ...owned, name: `${DEEP}/link`, type: 'symlink', mode: 0o777, linkname: `../../${LONG}/${LONG}/file` }],
];

describeMicrovm('exports of snapshots of virtual machines', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  let other: Client;
  let moved: Buffer;
  let shown: string;
  beforeAll(async () => {
    dataDir = await makeMicrovmDirectory();
    // A killed service left one. Another process is about to start a machine in the other one.
    for (const name of ['export-0', 'export-1']) mkdirSync(join(folder(), name, 'run'), { recursive: true });
    utimesSync(join(folder(), 'export-0'), 0, 0);
    service = await startTestService({ ...onMicrovm(dataDir), settings: { volumePurgeAfterMs: 0 } });
    [client, other] = [await service.newOrg(), await service.newOrg()];
  });
  afterAll(async () => {
    await destroyAll(service, client, other);
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });

  const folder = () => exportsDirectory(join(dataDir, 'microvm'));
  const left = () => (existsSync(folder()) ? readdirSync(folder()) : []);
  const inside = async (id: string, script: string) => shIn(service, id, script);
  const create = async (as: Client, name: string, image: object) => {
    const request = { name, image, pull_policy: 'never', ...SMALL };
    const { body, text } = await as.post('/v1/sandboxes', request, RUNNING);
    expect(body.status, text).toBe('running');
    return body.id as string;
  };

  test('an image comes back with every kind of file, owner, time and attribute', async () => {
    // The process that takes over removes the old one.
    await until(
      async () => Promise.resolve(left()),
      (names) => names.length === 1,
    );
    expect(left()).toEqual(['export-1']);
    rmdirSync(join(folder(), 'export-1', 'run'));
    rmdirSync(join(folder(), 'export-1'));
    const archive = packFiles(layoutFiles([await pack(ODD)]));
    expect((await importTo(client, archive, { name: 'odd' })).status).toBe(200);
    const { status, headers, bytes } = await exportOf(client, 'by-name/odd');
    expect([status, headers.get('content-length')]).toEqual([200, String(bytes.length)]);
    const { digest, manifest } = await imageIn(bytes);
    expect([headers.get('docker-content-digest'), manifest.layers.length]).toEqual([digest, 1]);
    const layer = (await filesOf(bytes)).get(`blobs/${manifest.layers[0].digest.replace(':', '/')}`)!;
    expect(await entriesOf(layer)).toEqual(await entriesOf(await pack(ODD)));
    expect((await exportOf(client, 'by-name/odd')).bytes.equals(bytes)).toBe(true);
    expect(left()).toEqual([]);
    expect((await exportOf(other, 'by-name/odd')).status).toBe(404);
  });

  test('a sandbox of an export in another organization has the files of the captured one', async () => {
    const source = await create(client, 'source', { type: 'oci', reference: IMAGE });
    await inside(source, CHANGES);
    expect((await capture(client, source, 'changed'))['error']).toBeNull();
    ({ bytes: moved } = await exportOf(client, 'by-name/changed'));
    const { config } = await imageIn(moved);
    expect(config.config).toMatchObject({
      WorkingDir: '/srv',
      Env: expect.arrayContaining(['FROM_IMAGE=yes']),
    });
    const imported = await importTo(other, moved, { name: 'moved' });
    expect(imported.status, imported.text).toBe(200);
    const copy = await create(other, 'copy', { type: 'disk_snapshot', id: 'moved' });
    shown = await inside(source, SHOW);
    expect(await inside(copy, SHOW)).toBe(shown);
    expect(
      await inside(copy, 'ls /bin/tail /srv/replaced 2>&1; [ /srv/one -ef /srv/two ] && echo same'),
    ).toBe('ls: /bin/tail: No such file or directory\n/srv/replaced:\nnew\nsame');
  });

  describeDocker('on Docker', () => {
    test('a sandbox of the export has the same files', async () => {
      const docker = await startInside({ settings: { volumePurgeAfterMs: 0 } });
      try {
        const imported = await importTo(docker.client, moved, { name: 'moved' });
        expect(imported.status, imported.text).toBe(200);
        const image = { type: 'disk_snapshot', id: 'moved' };
        const id = await docker.start('copy', { image });
        const command = { cmd: 'sh', args: ['-c', SHOW], user: 'root' };
        const { body, text } = await docker.client.post(`/v1/sandboxes/${id}/exec`, command);
        expect(body.exit_code, text.slice(0, 1_000)).toBe(0);
        expect(body.stdout.trim()).toBe(shown);
        await docker.client.delete(`/v1/sandboxes/${id}`);
        expect((await docker.client.delete('/v1/snapshots/by-name/moved')).status).toBe(200);
        await until(
          () => docker.service.runtime.snapshots!.list(),
          (snapshots) => snapshots.length === 0,
          60_000,
        );
      } finally {
        await docker.close();
      }
    });
  });

  test('two processes of an engine give their machines different users', async () => {
    const second = await startTestService({ ...onMicrovm(dataDir), beside: service, sameEngine: true });
    try {
      const asked = [client, makeClient(second.url, client)].map(async (as) =>
        exportOf(as, 'by-name/changed'),
      );
      const users = await until(
        async () => {
          const records = await Promise.all(
            left().map(async (name) => readRecord(placesIn(join(folder(), name)))),
          );
          return records.flatMap((record) => (record?.monitor ? userOf(record.monitor.pid) : []));
        },
        (found) => found.length === 2,
      );
      expect(new Set(users).size).toBe(2);
      expect((await Promise.all(asked)).map(({ status }) => status)).toEqual([200, 200]);
      expect(left()).toEqual([]);
    } finally {
      await second.close();
    }
  });

  test.each(['boots', 'sends'])(
    'a client that leaves while the machine %s ends it, and nothing stays',
    async (moment) => {
      const leaves = new AbortController();
      const asked = fetch(`${client.url}/v1/snapshots/by-name/changed/export`, {
        headers: { authorization: `Bearer ${client.key}` },
        signal: leaves.signal,
      }).then((answer) => answer.arrayBuffer());
      // Its end is awaited below.
      asked.catch(() => undefined);
      const isAt = async () => {
        const found = left().find((name) => existsSync(placesIn(join(folder(), name)).record));
        const record = found === undefined ? undefined : await readRecord(placesIn(join(folder(), found)));
        return moment === 'boots' ? record?.monitor !== undefined : record?.readyAt !== undefined;
      };
      await until(isAt, (is) => is);
      leaves.abort();
      await expect(asked).rejects.toThrow();
      await until(
        async () => Promise.resolve(left()),
        (names) => names.length === 0,
      );
    },
  );

  test('a disk that cannot be read, or has more than a disk holds, is refused with the reason', async () => {
    const [source] = (await client.get('/v1/sandboxes')).body.data;
    await inside(source.id, 'for i in 1 2 3; do truncate -s 300M /srv/hole$i; done');
    expect((await capture(client, source.id, 'holes'))['error']).toBeNull();
    const holes = await exportOf(client, 'by-name/holes');
    expect([holes.status, JSON.parse(holes.bytes.toString()).error]).toMatchObject([
      501,
      { code: 'not_supported', message: expect.stringContaining('remove files with holes') },
    ]);

    // Readers would take it for a mark, and drop it.
    await inside(source.id, `rm /srv/hole*; mkdir -p /srv/${LONG}; echo kept > /srv/${LONG}/.wh.file`);
    expect((await capture(client, source.id, 'marks'))['error']).toBeNull();
    const marks = await exportOf(client, 'by-name/marks');
    expect([marks.status, JSON.parse(marks.bytes.toString()).error.message]).toEqual([
      501,
      expect.stringMatching(
        /cannot archive \.\.\.n+\/\.wh\.file: rename it: images keep \.wh\. for removed files$/,
      ),
    ]);

    const { id } = (await client.get('/v1/snapshots/by-name/changed')).body;
    const layer = join(snapshotsDirectory(join(dataDir, 'microvm')), id, 'layer-0.qcow2');
    // A record of an archive ends its key at the first equals sign.
    addAttribute(layer, '/upper/srv/data', 'user.a=b');
    const ambiguous = await exportOf(client, 'by-name/changed');
    expect([ambiguous.status, JSON.parse(ambiguous.bytes.toString()).error.message]).toEqual([
      501,
      expect.stringContaining('cannot archive /srv/data: remove the attribute with = in its name'),
    ]);
    writeFileSync(layer, withoutFileSystem(readFileSync(layer)));
    const broken = await exportOf(client, 'by-name/changed');
    expect([broken.status, JSON.parse(broken.bytes.toString()).error]).toMatchObject([
      501,
      {
        code: 'not_supported',
        message: expect.stringContaining('the snapshot cannot be exported: cannot mount'),
      },
    ]);
    expect(left()).toEqual([]);
  });
});

/** The user of a monitor. Empty: it has not changed to it yet, or has ended. */
function userOf(pid: number): number[] {
  try {
    const user = Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]);
    return user === 0 ? [] : [user];
  } catch {
    return [];
  }
}

async function pack(entries: readonly Entry[]): Promise<Buffer> {
  const packed = tar.pack();
  for (const [fields, content] of entries) packed.entry(fields, content ?? Buffer.alloc(0));
  packed.finalize();
  const parts: Buffer[] = [];
  for await (const part of packed) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

/** Changes a file of a disk (qcow2). The changes in the journal come first: the sandbox ran at the capture. */
function addAttribute(disk: string, path: string, name: string): void {
  const raw = `${disk}.raw`;
  execFileSync('qemu-img', ['convert', '-f', 'qcow2', '-O', 'raw', disk, raw]);
  const script =
    'e2fsck -fy "$0" || [ $? -eq 1 ]; debugfs -w -R "ea_set $1 $2 value" "$0"; debugfs -R "ea_list $1" "$0"';
  const listed = execFileSync('sh', ['-c', script, raw, path, name], { encoding: 'utf8' });
  expect(listed).toContain(name);
  execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', raw, disk]);
  rmSync(raw);
}

/** A disk (qcow2) whose file system (ext4) has no magic number any more. */
function withoutFileSystem(disk: Buffer): Buffer {
  const [cluster, place] = [64 * 1024, 1024 + 56];
  for (let at = 0; at + place + 2 <= disk.length; at += cluster)
    if (disk.readUInt16LE(at + place) === 0xef53) disk.writeUInt16LE(0, at + place);
  return disk;
}

/** In the order of names. A reader that is not ours. */
async function entriesOf(archive: Buffer): Promise<unknown[]> {
  const found: [string, unknown][] = [];
  const extract = tar.extract();
  extract.on('entry', ({ pax, ...header }: Fields, content, next) => {
    const { name, type, mode, uid, gid, mtime, size, linkname, devmajor, devminor } = header;
    const attributes = Object.entries(pax ?? {}).filter(
      ([key]) => key.startsWith('SCHILY.') || key === 'mtime',
    );
    const time = pax?.['mtime'] === undefined ? mtime : undefined;
    const fields = { name, type, mode, uid, gid, size, linkname, devmajor, devminor, attributes, time };
    const parts: Buffer[] = [];
    content.on('data', (part: Buffer) => parts.push(part));
    content.once('end', () => {
      found.push([name, { ...fields, content: Buffer.concat(parts).toString('latin1') }]);
      next();
    });
  });
  await finished(Readable.from([archive]).pipe(extract));
  return found.toSorted(([one], [another]) => (one < another ? -1 : 1)).map(([, entry]) => entry);
}
