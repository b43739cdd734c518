import { afterEach, expect, test, vi } from 'vitest';
import { admittedMillis } from '../../src/runs/run-id.js';
import { isUuid, newId } from '../../src/lib/uuid.js';

afterEach(() => void vi.restoreAllMocks());

test('the ids of a process are UUIDs of version 7 that strictly increase', () => {
  const ids = Array.from({ length: 20_000 }, newId);
  expect(ids.every((id) => isUuid(id) && id[14] === '7' && '89ab'.includes(id[19]!))).toBe(true);
  expect(ids).toEqual([...new Set(ids)].toSorted());
});

test('an id has the time of its creation, also after the system clock was set back', () => {
  const real = Date.now.bind(Date);
  const isNow = () => {
    const before = Date.now() - 1;
    const millis = admittedMillis(newId());
    return before <= millis && millis <= Date.now() + 1;
  };
  expect(isNow()).toBe(true);
  const ahead = vi.spyOn(Date, 'now').mockImplementation(() => real() + 86_400_000);
  expect(isNow()).toBe(true);
  ahead.mockRestore();
  expect(isNow()).toBe(true);
});
