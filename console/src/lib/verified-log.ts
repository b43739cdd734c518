import { session } from './session';
import { storedRecord } from './stored-record';

/** By organization: when this browser last verified the whole log. */
const times = storedRecord('sandkeep.verified', (value): value is string => typeof value === 'string');

export function noteVerified(): void {
  const id = session.value?.organization.id;
  if (id !== undefined) times.value = { ...times.value, [id]: new Date().toISOString() };
}

/** Undefined: never. */
export function lastVerified(): string | undefined {
  return times.value[session.value?.organization.id ?? ''];
}
