import { expect, test } from 'vitest';
import { RoomRetries } from '../../src/engines/docker/room-retries.js';
import { NoRoomError } from '../../src/engine/runtime.js';

test('a start without room is tried again after 1, 2, 4 … 30 seconds, and soon after something ended', () => {
  let now = 0;
  const retries = new RoomRetries(() => now);
  const isDue = () => {
    try {
      retries.check('run');
      return true;
    } catch (error) {
      expect(error).toEqual(new NoRoomError('full'));
      return false;
    }
  };
  const waits = [];
  for (let attempt = 0; attempt < 7; attempt += 1) {
    const began = now;
    retries.note('run', 'full');
    while (!isDue()) now += 500;
    waits.push(now - began);
  }
  expect(waits).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
  retries.note('run', 'full');
  now += 1_000;
  expect(isDue()).toBe(false);
  retries.freed();
  expect(isDue()).toBe(true);
  retries.succeeded('run');
  expect(isDue()).toBe(true);
});
