import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { Readable } from 'node:stream';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { pack } from 'tar-stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Header, Manifest } from '../../src/backup/archive/format.js';
import { verifyArchive } from '../../src/backup/archive/open.js';
import { unpackTree } from '../../src/volumes/storage/tar-program.js';
import { makeBackup } from '../../src/backup/make.js';
import { restoreBackup } from '../../src/backup/restore.js';
import { END_OF_ARCHIVE, tarHeader, tarPadding } from '../../src/lib/tar-entry.js';
import { withEmptyDatabase } from '../support/backup.js';
import { startTestService } from '../support/service.js';

interface Entry {
  name: string;
  content: Buffer;
}

/** The entries of an archive, by a reader of its own. */
function entriesIn(file: string): Entry[] {
  const tar = gunzipSync(readFileSync(file));
  const entries: Entry[] = [];
  for (let at = 0; tar[at] !== 0;) {
    const name = tar.toString('latin1', at, at + 100).replace(/\0.*/s, '');
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 135), 8);
    entries.push({ name, content: tar.subarray(at + 512, at + 512 + size) });
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return entries;
}

function tarOf(entries: readonly Entry[]): Buffer {
  const parts = entries.flatMap(({ name, content }) => [
    tarHeader(name, content.length),
    content,
    tarPadding(content.length),
  ]);
  return Buffer.concat([...parts, END_OF_ARCHIVE]);
}

function hasSameContent(compressed: Buffer, original: Buffer): boolean {
  try {
    return gunzipSync(compressed).equals(gunzipSync(original));
  } catch {
    return false;
  }
}

const jsonIn = ({ content }: Entry) => JSON.parse(content.toString()) as unknown;
const sha256 = (content: Buffer) => createHash('sha256').update(content).digest('hex');

describe.skipIf(process.platform !== 'linux')('the archive of a backup', () => {
  let folder: string;
  let good: string;
  let entries: Entry[];
  const at = (name: string) => join(folder, name);

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'sandkeep-archive-'));
    good = at('good.tar.gz');
    const service = await startTestService();
    const client = await service.newOrg();
    for (let count = 0; count < 20; count += 1) await client.post('/v1/volumes', { name: `volume-${count}` });
    await client.post('/v1/volumes', { name: 'last' });
    const places = {
      dataDir: service.directory,
      volumesDir: service.volumesDir,
      secretKeysFile: join(service.directory, 'secret-keys'),
      eventKeysFile: join(service.directory, 'event-keys'),
    };
    service.ctx.keyring();
    await makeBackup(service.ctx.pool, { places, file: good, withVolumes: true, withKeys: true });
    await service.close();
    entries = entriesIn(good);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  /** The archive is refused with this reason, and the place of the restore stays untouched. */
  async function expectRefused(bytes: Buffer, reason: RegExp): Promise<void> {
    const file = at('bad.tar.gz');
    writeFileSync(file, bytes);
    await expect(verifyArchive(file)).rejects.toThrow(reason);
    const dataDir = at('never');
    const places = {
      dataDir,
      volumesDir: join(dataDir, 'volumes'),
      secretKeysFile: at('s'),
      eventKeysFile: at('e'),
    };
    const restore = restoreBackup({ file, places, databaseUrl: undefined }, () => Promise.resolve());
    await expect(restore).rejects.toThrow(reason);
    expect(existsSync(dataDir)).toBe(false);
  }

  const altered = (change: (all: Entry[]) => Entry[]) =>
    gzipSync(tarOf(change(entries.map((entry) => ({ ...entry })))));
  const withHeader = (change: (header: Header) => unknown) =>
    altered((all) => {
      const header = jsonIn(all[0]!) as Header;
      change(header);
      const content = Buffer.from(JSON.stringify(header));
      const manifest = jsonIn(all.at(-1)!) as Manifest;
      manifest.headerSha256 = sha256(content);
      return [
        { ...all[0]!, content },
        ...all.slice(1, -1),
        { ...all.at(-1)!, content: Buffer.from(JSON.stringify(manifest)) },
      ];
    });

  test('is readable by tar, and good as it is', async () => {
    expect(execFileSync('tar', ['--list', '--gzip', '--file', good], { encoding: 'utf8' })).toBe(
      `${entries.map(({ name }) => name).join('\n')}\n`,
    );
    const { manifest } = await verifyArchive(good);
    expect(manifest.parts.find(({ name }) => name === 'database/volumes')?.rows).toBe(22);
  });

  test('is refused when it is truncated anywhere', async () => {
    const bytes = readFileSync(good);
    for (const length of [0, 1, 10, 100, 0.3, 0.6, 0.9, 0.999].map((n) =>
      n % 1 === 0 ? n : Math.floor(n * bytes.length),
    ))
      await expectRefused(bytes.subarray(0, length), /is truncated|was changed|is not a backup/);
    await expectRefused(bytes.subarray(0, bytes.length - 1), /is truncated/);
    const tar = gunzipSync(bytes);
    for (const cut of [512, 1024, 2048, 20_000])
      await expectRefused(gzipSync(tar.subarray(0, tar.length - cut)), /is truncated/);
  });

  test('is refused when any of its bytes was altered', async () => {
    const bytes = readFileSync(good);
    for (let round = 0; round < 20; round += 1) {
      const changed = Buffer.from(bytes);
      // The first bytes of gzip have a time and a system, which mean nothing.
      const place = 10 + Math.floor((round / 20) * (bytes.length - 10));
      changed[place]! ^= 1 << (round % 8);
      // Some bits only fill a byte of the compressed form.
      if (hasSameContent(changed, bytes)) continue;
      await expectRefused(changed, /cannot be used/);
    }
    for (const index of [1, 5, entries.length - 2])
      await expectRefused(
        altered((all) => {
          all[index]!.content = Buffer.from(all[index]!.content);
          all[index]!.content[0]! ^= 1;
          return all;
        }),
        /its part .* was changed/,
      );
  });

  test('is refused when a part was removed, added, repeated or moved', async () => {
    await expectRefused(
      altered((all) => all.filter((_, index) => index !== 5)),
      /its part .* is missing/,
    );
    await expectRefused(
      altered((all) => [...all.slice(0, 6), ...all.slice(5)]),
      /a piece of its part .* is missing/,
    );
    const extra = { name: 'database/orgs2/000000001', content: Buffer.from('x') };
    await expectRefused(
      altered((all) => [...all.slice(0, -1), extra, all.at(-1)!]),
      /is not in its manifest/,
    );
    await expectRefused(
      altered((all) => [all[0]!, all[2]!, all[1]!, ...all.slice(3)]),
      /is missing/,
    );
    await expectRefused(
      altered((all) => [...all, extra]),
      /something follows its manifest/,
    );
    await expectRefused(
      Buffer.concat([gzipSync(gunzipSync(readFileSync(good))), gzipSync(Buffer.alloc(512))]),
      /follows its end/,
    );
  });

  test('is refused with names that lead elsewhere, links and impossible sizes', async () => {
    for (const name of [
      '../../etc/cron.d/x',
      '/etc/passwd',
      'files/secret-keys',
      'volumes/../../x/000000001',
    ])
      await expectRefused(
        altered((all) => [all[0]!, { name, content: Buffer.from('x') }, ...all.slice(1)]),
        /unexpected place|is missing|is not in its manifest/,
      );
    const link = tarHeader('files/x/000000001', 0);
    link.write('2', 156);
    const sum = link.reduce((total, byte, place) => total + (place >= 148 && place < 156 ? 32 : byte), 0);
    link.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    await expectRefused(
      gzipSync(Buffer.concat([tarOf(entries.slice(0, 1)).subarray(0, -1024), link])),
      /is no file/,
    );
    const huge = tarHeader('database/orgs/000000001', 8 ** 11 - 1);
    await expectRefused(
      gzipSync(Buffer.concat([tarOf(entries.slice(0, 1)).subarray(0, -1024), huge])),
      /impossible size/,
    );
    await expectRefused(gzipSync(tarHeader('sandkeep-backup.json', 2 ** 40)), /impossible size/);
  });

  test('is refused by a release that does not know its format or its schema', async () => {
    await expectRefused(
      withHeader((header) => (header.format = 2)),
      /has format 2 .* use that release or a later one/,
    );
    const migration = { number: 9_000, name: '9000_later.sql', checksum: 'x' };
    await expectRefusedByRestore(withHeader(({ database }) => database.migrations.push(migration)));
    await expectRefusedByRestore(withHeader(({ database }) => (database.migrations[3]!.checksum = 'other')));
    await expectRefused(
      withHeader(({ database }) => (database.tables[0]!.name = 'x"; drop table orgs; --')),
      /not valid/,
    );
    await expectRefused(gzipSync(tarOf([{ name: 'other', content: Buffer.from('x') }])), /is not a backup/);
    await expectRefused(Buffer.from('not an archive at all'), /is not a backup/);
  });

  async function expectRefusedByRestore(bytes: Buffer): Promise<void> {
    writeFileSync(at('newer'), bytes);
    const places = {
      dataDir: at('never'),
      volumesDir: at('never2'),
      secretKeysFile: at('s'),
      eventKeysFile: at('e'),
    };
    await expect(
      restoreBackup({ file: at('newer'), places, databaseUrl: undefined }, () => Promise.resolve()),
    ).rejects.toThrow(/whose schema this release does not know/);
    expect(existsSync(at('never'))).toBe(false);
  }

  test('leaves no rows when one cannot be loaded', async () => {
    const file = at('bad-row');
    const bad = altered((all) => {
      const place = all.findIndex(({ name }) => name.startsWith('database/volumes/'));
      const content = Buffer.from('not\ta\trow\n');
      all[place]!.content = content;
      const manifest = jsonIn(all.at(-1)!) as Manifest;
      const part = manifest.parts.find(({ name }) => name === 'database/volumes')!;
      Object.assign(part, { sha256: sha256(content), bytes: content.length });
      all.at(-1)!.content = Buffer.from(JSON.stringify(manifest));
      return all;
    });
    writeFileSync(file, bad);
    await withEmptyDatabase(async (url) => {
      const dataDir = at('rows');
      const places = {
        dataDir,
        volumesDir: join(dataDir, 'volumes'),
        secretKeysFile: join(dataDir, 'secret-keys'),
        eventKeysFile: join(dataDir, 'event-keys'),
      };
      const restore = (from: string) =>
        restoreBackup({ file: from, places, databaseUrl: url }, () => Promise.resolve('done'));
      await expect(restore(file)).rejects.toThrow(/the rows of volumes cannot be loaded/);
      expect(readdirSync(dataDir)).toContain('unfinished-restore');
      expect(await restore(good)).toBe('done');
      expect(readdirSync(dataDir)).not.toContain('unfinished-restore');
    });
  });

  test('writes no file of a volume outside its directory', async () => {
    mkdirSync(at('inside'));
    mkdirSync(at('outside'));
    const hostile = pack();
    hostile.entry({ name: 'data/../../escaped' }, 'x');
    hostile.entry({ name: `${at('outside')}/absolute` }, 'x');
    hostile.entry({ name: 'data/link', type: 'symlink', linkname: at('outside') });
    hostile.entry({ name: 'data/link/through' }, 'x');
    hostile.entry({ name: 'data/up', type: 'symlink', linkname: '../../outside' });
    hostile.entry({ name: 'data/up/through' }, 'x');
    hostile.entry({ name: 'data/second', type: 'link', linkname: at('newer') });
    hostile.finalize();
    const bytes = Buffer.concat(await collected(hostile));
    await expect(unpackTree(at('inside'), 'data', Readable.from([bytes]))).rejects.toThrow(
      /cannot be restored/,
    );
    expect(readdirSync(at('outside'))).toEqual([]);
    expect(existsSync(at('inside/data/second'))).toBe(false);
    expect(existsSync(at('escaped'))).toBe(false);
  });
});

async function collected(stream: NodeJS.ReadableStream): Promise<Buffer[]> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return chunks;
}
