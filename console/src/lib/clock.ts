import { signal } from '@preact/signals';

const TICK_MS = 15_000;
const tick = signal(0);

setInterval(() => {
  if (!document.hidden) tick.value += 1;
}, TICK_MS);

/** The time in milliseconds. A component that reads it is drawn again at each tick. */
export function currentTime(): number {
  // The read subscribes the component.
  void tick.value;
  return Date.now();
}
