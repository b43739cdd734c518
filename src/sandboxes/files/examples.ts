import { Buffer } from 'node:buffer';
import { SANDBOX_ID } from '../../http/example-ids.js';
import type { Example, Examples } from '../../http/examples.js';

function encoded(path: string): string {
  return Buffer.from(path).toString('base64url');
}

const FILE = {
  path: '/tmp/notes.txt',
  kind: 'file',
  size: 6,
  mode: 420,
  uid: 0,
  gid: 0,
  readonly: false,
  accessed_at: '2026-11-23T05:15:49.000Z',
  modified_at: '2026-11-23T05:15:49.000Z',
};

const file = { 'x-msb-file-path': encoded('/tmp/notes.txt') };
const directory = { 'x-msb-file-path': encoded('/tmp') };

function addressed(
  id: string,
  parameters: Example['parameters'],
  rest: Omit<Example, 'parameters'>,
): Examples {
  return {
    [id]: { parameters: { sandbox_id: SANDBOX_ID, ...parameters }, ...rest },
    [`${id}_by_name`]: { parameters: { name: 'web', ...parameters }, ...rest },
  };
}

export const sandboxFileExamples: Examples = {
  ...addressed('list_sandbox_files', directory, { answer: { entries: [FILE] } }),
  ...addressed('stat_sandbox_file', file, { answer: { metadata: FILE } }),
  ...addressed('sandbox_file_exists', file, { answer: { exists: true } }),
  ...addressed('read_sandbox_file', file, { answer: 'hello\n' }),
  ...addressed('write_sandbox_file', file, { body: 'hello\n', answer: { message: 'the file is written' } }),
  ...addressed('delete_sandbox_file', file, { answer: { message: 'the file is removed' } }),
  ...addressed(
    'make_sandbox_directory',
    {},
    { body: { path: '/srv/reports' }, answer: { message: 'the directory is there' } },
  ),
  ...addressed(
    'copy_sandbox_file',
    {},
    { body: { from: '/tmp/notes.txt', to: '/srv/notes.txt' }, answer: { message: 'the file is copied' } },
  ),
  ...addressed(
    'rename_sandbox_file',
    {},
    { body: { from: '/tmp/notes.txt', to: '/srv/notes.txt' }, answer: { message: 'renamed' } },
  ),
};
