/** The meaning of the colour of a status. Without an entry: none. */
export const TONES: Record<string, string> = {
  running: 'good',
  active: 'good',
  delivered: 'good',
  ready: 'good',
  succeeded: 'good',
  done: 'good',
  starting: 'busy',
  stopping: 'busy',
  pending: 'busy',
  queued: 'busy',
  building: 'busy',
  'in progress': 'busy',
  deleting: 'busy',
  failed: 'bad',
  revoked: 'bad',
  expired: 'bad',
  expiring: 'busy',
  near: 'busy',
  'within the limit': 'good',
  'threshold reached': 'busy',
  'not priced': 'busy',
  'used up': 'bad',
  suspended: 'bad',
  unverified: 'busy',
};

export function Badge({ status }: { status: string }) {
  return <span class={`badge ${TONES[status] ?? 'calm'}`}>{status}</span>;
}
