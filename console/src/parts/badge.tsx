const TONES: Record<string, string> = {
  running: 'good',
  active: 'good',
  delivered: 'good',
  starting: 'busy',
  stopping: 'busy',
  pending: 'busy',
  deleting: 'busy',
  failed: 'bad',
  revoked: 'bad',
  expired: 'bad',
};

export function Badge({ status }: { status: string }) {
  return <span class={`badge ${TONES[status] ?? 'calm'}`}>{status}</span>;
}
