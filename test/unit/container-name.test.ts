import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import type { Instant } from '../../src/lib/instant.js';
import {
  isBaseline,
  nameOfNew,
  nameOfNext,
  runOfContainer,
} from '../../src/engines/docker/container-name.js';
import type { Run } from '../../src/engine/runtime.js';

const SANDBOX = '0190a5c4-7e5f-7000-8000-0123456789ab';
const FIRST = randomUUID();
const LABELS = { 'dev.sandkeep.sandbox': SANDBOX, 'dev.sandkeep.run': FIRST };
const BEFORE = '2026-11-27T10:00:00.000123Z' as Instant;

function runOf(name: string, runId = FIRST): Run {
  return { orgId: 'org', sandboxId: SANDBOX, runId, name } as Run;
}

test('the container of a first run has a short name, and its run in a label', () => {
  expect(nameOfNew(runOf('hello'))).toBe('sandkeep-hello-456789ab');
  const found = runOfContainer('/sandkeep-hello-456789ab', LABELS)!;
  expect(found).toMatchObject({ sandboxId: SANDBOX, runId: FIRST });
  expect(isBaseline(null, found.baseline)).toBe(true);
  expect(isBaseline(BEFORE, found.baseline)).toBe(false);
});

test.each(['hello', 'a.b.c', 'net', 'x-0123abcd', 'n'.repeat(128)])(
  'a later run of %s is in the name, with the start time before it',
  (name) => {
    const next = randomUUID();
    for (const startedAt of [null, BEFORE]) {
      const found = runOfContainer(`/${nameOfNext(runOf(name, next), startedAt)}`, LABELS)!;
      expect(found).toMatchObject({ sandboxId: SANDBOX, runId: next });
      expect(isBaseline(startedAt, found.baseline)).toBe(true);
    }
  },
);

test('names of earlier releases are read, and those of other containers are not', () => {
  const labels = { 'dev.sandkeep.sandbox': SANDBOX };
  expect(runOfContainer(`/sandkeep-${SANDBOX}-${FIRST}-0`, labels)).toEqual({
    sandboxId: SANDBOX,
    runId: FIRST,
    baseline: '0',
  });
  expect(runOfContainer('/sandkeep-hello-456789ab', labels)).toBeUndefined();
  expect(runOfContainer('/sandkeep-init-0123456789ab', {})).toBeUndefined();
  expect(runOfContainer('/somebody-elses', LABELS)).toBeUndefined();
});
