import type { VolumeResponse } from '../lib/api-types';
import { bytes } from '../lib/bytes';
import { Meter } from '../parts/meter';

export function Use({ of: { used_bytes, capacity_bytes } }: { of: VolumeResponse }) {
  if (used_bytes == null) {
    return (
      <>{capacity_bytes == null ? 'not read yet, no cap' : `not read yet, cap ${bytes(capacity_bytes)}`}</>
    );
  }
  return <Meter label="Use of the volume" used={used_bytes} limit={capacity_bytes} words={bytes} />;
}
