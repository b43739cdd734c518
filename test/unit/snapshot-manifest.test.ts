import { expect, test } from 'vitest';
import { instantFromPostgres } from '../../src/lib/instant.js';
import { digestOf, manifestOf } from '../../src/snapshots/manifest.js';
import { clientDigest } from '../support/snapshots.js';

const ROW = {
  parent_digest: null,
  image: 'docker.io/library/python:3.12',
  image_digest: `sha256:${'a'.repeat(64)}`,
  sandbox_name: 'build-1',
  record_integrity: false,
  labels: { owner: 'alice' },
  size_bytes: 4096,
  disk_mib: null as number | null,
  content_digest: `sha256:${'b'.repeat(64)}`,
};

test.each([
  ['2026-05-01 12:00:00+00', '2026-05-01T12:00:00Z'],
  ['2026-05-01 12:00:10.1+00', '2026-05-01T12:00:10.1Z'],
  ['2026-05-01 12:00:00.480200+00', '2026-05-01T12:00:00.4802Z'],
  ['2026-05-01 12:00:00.000001+00', '2026-05-01T12:00:00.000001Z'],
])('the time %s is in the canonical form of clients, %s', (stored, shown) => {
  expect(manifestOf({ ...ROW, created_at: instantFromPostgres(stored) }).created_at).toBe(shown);
});

test('the digest is that of the bytes that clients make of the descriptor', () => {
  const created_at = instantFromPostgres('2026-05-01 12:00:00+00');
  const labels = { '\u{1F600}': 'a', '\uFF5E': 'b', '10': 'c', '9': '"\\\n\u001f\u007f\u2028' };
  for (const part of [
    {},
    { labels },
    { record_integrity: true },
    { parent_digest: `sha256:${'c'.repeat(64)}` },
  ]) {
    const manifest = manifestOf({ ...ROW, created_at, ...part });
    expect(digestOf(manifest)).toBe(clientDigest(manifest));
  }
  const disk = manifestOf({ ...ROW, created_at, disk_mib: 256 });
  expect(digestOf(disk)).toBe(clientDigest(disk));
  expect(disk.state).toMatchObject({ format: 'qcow2', fstype: 'ext4', upper: { file: 'layer.qcow2' } });
  // By hand, as the clients write it.
  const text =
    '{"schema":1,"artifact":"snapshot","scope":"disk","created_at":"2026-05-01T12:00:00Z","parent":null,' +
    `"image":{"ref":"docker.io/library/python:3.12","manifest_digest":"sha256:${'a'.repeat(64)}"},` +
    '"source_sandbox":"build-1","state":{"kind":"file","format":"raw","fstype":"oci-layer","upper":' +
    '{"file":"layer.tar","size_bytes":4096,"integrity":null}},"labels":{"owner":"alice"},"extensions":{},"requires":[]}';
  expect(JSON.stringify(manifestOf({ ...ROW, created_at }))).toBe(text);
});
