/** Measurements that only the measured code can make. A service without metrics drops them. */
export interface Meters {
  /** `seconds`: from the admission of the run to its start. */
  runStarted(seconds: number): void;
  /** `seconds`: from the request to stop it; undefined: the run ended by itself. */
  runEnded(reason: string, seconds: number | undefined): void;
  runtimeCalled(call: string, outcome: 'done' | 'failed', seconds: number): void;
  loopFailed(loop: string): void;
  /** `signal`: spans or logs. */
  telemetryExported(signal: string, outcome: 'exported' | 'dropped' | 'failed', items: number): void;
}

const drop = () => undefined;

export const NO_METERS: Meters = {
  runStarted: drop,
  runEnded: drop,
  runtimeCalled: drop,
  loopFailed: drop,
  telemetryExported: drop,
};
