import { expect, test } from 'vitest';
import { explainSharedLimits } from '../../src/engines/docker/shared-limits.js';

const read = (values: Record<string, string>) => (name: string) => values[name] ?? 'Infinity';

test('limits that sandboxes share are named with their remedy, if they are low', () => {
  expect(
    explainSharedLimits(read({ 'fs.inotify.max_user_instances': '128\n', 'kernel.pty.max': '1048576\n' })),
  ).toEqual({
    found: 'one sandbox can take from all others: fs.inotify.max_user_instances is 128',
    remedy: 'sysctl -w fs.inotify.max_user_instances=1048576',
  });
  expect(explainSharedLimits(read({ 'kernel.pty.max': '4096\n' }))?.found).toContain(
    'kernel.pty.max is 4096',
  );
  expect(explainSharedLimits(read({}))).toBeUndefined();
});
