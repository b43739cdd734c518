/** Measurements that only the measured code can make. A service without metrics drops them. */
export interface Meters {
  /** `seconds`: from the admission of the run to its start. */
  runStarted(seconds: number): void;
  /** A create with a start. `warm`: it took a sandbox of a pool. */
  sandboxCreated(source: 'warm' | 'cold'): void;
  /** `seconds`: from the request to stop it; undefined: the run ended by itself. */
  runEnded(reason: string, seconds: number | undefined): void;
  runtimeCalled(call: string, outcome: 'done' | 'failed', seconds: number): void;
  loopFailed(loop: string): void;
  /** `addedSeconds`: from the arrival of the request to its connection in the sandbox. */
  previewAnswered(outcome: string, addedSeconds: number | undefined): void;
  /** `in`: from clients to sandboxes. */
  previewMoved(direction: 'in' | 'out', bytes: number): void;
  /** `change`: 1 or -1. */
  previewOpened(kind: 'request' | 'upgraded', change: number): void;
  /** `outcome`: `running`, or why requests got no running sandbox. `seconds`: since the first one that waits. */
  previewWoken(outcome: string, seconds: number): void;
  /** `signal`: spans or logs. */
  telemetryExported(signal: string, outcome: 'exported' | 'dropped' | 'failed', items: number): void;
}

const drop = () => undefined;

export const NO_METERS: Meters = {
  runStarted: drop,
  sandboxCreated: drop,
  runEnded: drop,
  runtimeCalled: drop,
  loopFailed: drop,
  previewAnswered: drop,
  previewMoved: drop,
  previewOpened: drop,
  previewWoken: drop,
  telemetryExported: drop,
};
