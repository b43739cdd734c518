import { Buffer } from 'node:buffer';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import tar from 'tar-stream';
import { expect, test } from 'vitest';
import type { TarEntry } from '../../src/registry/tar-entry.js';
import { TarScan } from '../../src/registry/tar-scan.js';

const MIB = 1024 * 1024;

async function headerOf(pax: Record<string, string>): Promise<Buffer> {
  const packed = tar.pack();
  packed.entry({ name: 'f', pax } as Parameters<typeof packed.entry>[0], Buffer.alloc(0));
  packed.finalize();
  const parts: Buffer[] = [];
  for await (const part of packed) parts.push(part as Buffer);
  return Buffer.concat(parts).subarray(0, -1_024);
}

test('the names of entries keep nothing else of their headers in memory', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const entries: TarEntry[] = [];
  const scan = new TarScan({ entry: (entry) => entries.push(entry), content: () => undefined });
  const archive = await headerOf({
    path: 'a-name-of-a-file-that-is-kept',
    linkpath: 'a-target-of-a-link-that-is-kept',
    comment: 'x'.repeat(MIB / 2),
  });
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let count = 0; count < 200; count += 1) scan.push(archive);
  collect();
  expect(entries).toHaveLength(200);
  expect(entries[0]).toMatchObject({ path: 'a-name-of-a-file-that-is-kept' });
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(50 * MIB);
});

test('a header with very many records is refused: it is read in one step', async () => {
  const records = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, 'v']));
  new TarScan().push(await headerOf(records(900)));
  const many = await headerOf(records(1_001));
  expect(() => new TarScan().push(many)).toThrow('more than 1000 records');
});

test.each(['5a=b\n', '99 a=b\n', '6 a=b', '7 ab=\nx', '4 =\n', '0 a=b\n', ' 6 a=b\n'])(
  'the record %j is not valid',
  async (text) => {
    const archive = Buffer.from(await headerOf({ comment: 'y'.repeat(text.length + 20) }));
    const at = archive.indexOf('comment=') - 3;
    archive.fill(0, at, 1_024);
    archive.write(text, at, 'latin1');
    // Its size is that of the text.
    archive.write(`${text.length.toString(8).padStart(11, '0')} `, 124, 'latin1');
    expect(() => new TarScan().push(archive)).toThrow('an extended header of a layer is not valid');
  },
);
