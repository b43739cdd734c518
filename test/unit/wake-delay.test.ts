import { expect, test } from 'vitest';
import { addMillis, instantFromMicros, type Instant } from '../../src/lib/instant.js';
import { newId } from '../../src/lib/uuid.js';
import { delayOf } from '../../src/sandboxes/lifecycle/wake.js';

const NOW = instantFromMicros(1_795_000_000_000_000n);
const before = (millis: number): Instant => addMillis(NOW, -millis);

/** A run that ended a second ago. */
function run(endReason: string, lastedMs: number | null, stopReason: string | null = null) {
  return {
    org_id: newId(),
    id: newId(),
    started_at: lastedMs === null ? null : before(1_000 + lastedMs),
    stopped_at: lastedMs === null ? null : before(1_000),
    seen_at: null,
    end_reason: endReason,
    stop_reason: stopReason,
    resumes: false,
    command: null,
    max_duration_secs: null,
    idle_timeout_secs: null,
    started_by_key: null,
  };
}
const crash = run('crashed', 500);

test('the delay doubles with each failed start in a row, up to five minutes, from the latest end', () => {
  const delays = [0, 1, 2, 3, 10].map((failed) => delayOf(Array<typeof crash>(failed).fill(crash), NOW));
  expect(delays).toEqual([0, 1_000, 3_000, 7_000, 299_000]);
  expect(delayOf([crash], addMillis(NOW, 60_000))).toBe(0);
});

test('a long run, a requested end and a start without room are no failed starts, and end the row', () => {
  for (const good of [
    run('crashed', 120_000),
    run('idle_timeout', 500, 'idle_timeout'),
    run('requested', 500, 'requested'),
    run('no_room_in_time', null),
  ]) {
    expect(delayOf([good, crash, crash], NOW)).toBe(0);
    expect(delayOf([crash, good, crash], NOW)).toBe(1_000);
  }
});
