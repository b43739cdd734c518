import { VOLUME_ID } from '../../http/example-ids.js';
import type { Examples } from '../../http/examples.js';

const id = VOLUME_ID;
const parameters = { id, 'x-msb-file-path': encoded('notes.txt') };
const FILE = {
  path: '/notes.txt',
  kind: 'file',
  size: 6,
  mode: 420,
  uid: 0,
  gid: 0,
  readonly: false,
  accessed_at: '2026-11-23T05:15:49.441Z',
  modified_at: '2026-11-23T05:15:49.425Z',
  created_at: '2026-11-23T05:15:49.421Z',
};

function encoded(path: string): string {
  return Buffer.from(path).toString('base64url');
}

export const volumeFileExamples: Examples = {
  list_volume_files: {
    parameters: { id, 'x-msb-file-path': encoded('/') },
    answer: { entries: [FILE] },
  },
  delete_volume_file: { parameters, answer: { message: 'the file is removed' } },
  stat_volume_file: { parameters, answer: { metadata: FILE } },
  volume_file_exists: { parameters, answer: { exists: true } },
  read_volume_file: { parameters, answer: 'hello\n' },
  write_volume_file: { parameters, body: 'hello\n', answer: { message: 'the file is written' } },
  make_volume_directory: {
    parameters: { id },
    body: { path: 'reports/2026' },
    answer: { message: 'the directory is there' },
  },
  copy_volume_file: {
    parameters: { id },
    body: { from: 'notes.txt', to: 'reports/notes.txt' },
    answer: { message: 'the file is copied' },
  },
  rename_volume_file: {
    parameters: { id },
    body: { from: 'notes.txt', to: 'old-notes.txt' },
    answer: { message: 'renamed' },
  },
};
