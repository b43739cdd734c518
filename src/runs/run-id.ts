/** The ids of runs are UUIDs of version 7: in order of admission, with its time in milliseconds. */
export function admittedMillis(runId: string): number {
  return Number.parseInt(runId.replace('-', '').slice(0, 12), 16);
}

/** The lowest id of a run that was admitted in this millisecond. */
export function firstIdOf(millis: number): string {
  const hex = millis.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
}
