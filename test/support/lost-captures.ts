import { until } from './polling.js';
import { startForTest, type TestService } from './service.js';

/**
 * A service whose captures never end, as if its process were killed before or after the engine has the disk.
 * `captured` resolves at the first one.
 */
export async function startWithLostCaptures(
  moment: 'before' | 'after',
): Promise<{ service: TestService; captured: () => Promise<void> }> {
  const none = new Promise<never>(() => undefined);
  let captures = 0;
  const onCapture = async () => {
    captures += 1;
    if (moment === 'before') await none;
  };
  const service = await startForTest({ simulated: { onCapture }, settings: { stopGraceMs: 0 } });
  if (moment === 'after') {
    const snapshots = service.runtime.snapshots!;
    const capture = snapshots.capture.bind(snapshots);
    snapshots.capture = async (...call) => {
      await capture(...call);
      return none;
    };
  }
  return {
    service,
    async captured() {
      await until(
        () => Promise.resolve(captures),
        (count) => count === 1,
      );
    },
  };
}
