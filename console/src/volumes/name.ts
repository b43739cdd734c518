import type { VolumeResponse } from '../lib/api-types';

export function nameOf({ kind, name }: VolumeResponse): string {
  return kind === 'host' ? 'Host volume' : (name ?? '');
}
