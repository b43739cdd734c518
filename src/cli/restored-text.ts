import { counted } from '../lib/counted.js';
import type { EngineComparison } from '../backup/compare-engine.js';
import type { Verification } from '../backup/verify-restored.js';

/** `also`: the other part that was verified. */
export function verificationText({ faults, notes, events }: Verification, also: string): string[] {
  const verdict =
    faults.length === 0
      ? `Verified: ${also}, and ${counted(events, 'event')} in their signed logs.`
      : 'NOT AS IT WAS:';
  return [verdict, ...faults.map((fault) => `  - ${fault}`), ...notes.map((note) => `NOTE: ${note}`)];
}

const SHOWN = 20;

export function engineText(engine: EngineComparison | null): string[] {
  if (!engine) return [];
  const { runtime, unreachable, notHeld, notStored, running } = engine;
  if (unreachable !== null) {
    return [
      `The ${runtime} engine was not compared: ${unreachable}. The service compares ${running} running sandboxes with it at its start.`,
    ];
  }
  const list = (ids: readonly string[]) => ids.slice(0, SHOWN).map((id) => `  - ${id}`);
  return [
    `The ${runtime} engine holds ${running - notHeld.length} of the ${running} sandboxes that run in the store.`,
    ...(notHeld.length === 0 ? [] : [`The service will record ${notHeld.length} as lost:`, ...list(notHeld)]),
    ...(notStored.length === 0
      ? []
      : [
          `The service will remove ${notStored.length} that the store does not know as running:`,
          ...list(notStored),
        ]),
  ];
}

export function verificationJson({ events, faults, notes }: Verification, engine: EngineComparison | null) {
  return {
    events_verified: events,
    faults,
    notes,
    engine: engine && {
      runtime: engine.runtime,
      unreachable: engine.unreachable,
      not_held: engine.notHeld,
      not_stored: engine.notStored,
    },
  };
}
