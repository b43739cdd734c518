import type { V1Pod } from '@kubernetes/client-node';
import { describe, expect, test } from 'vitest';
import { explainWaiting } from '../../src/engines/kubernetes/reasons.js';

const CREATED = Date.UTC(2026, 0, 1, 12);
const DENIED = 'failed to pull: 401 Unauthorized';
const REFUSAL = 'the image image cannot be pulled: the registry refuses the credentials, or requires some';

/** The explanation of a Pod, so many seconds after its creation. Undefined: it may still start. */
function said(seconds: number, reason: string, message = '', imagePullSecrets = [{ name: 'pull' }]) {
  const pod: V1Pod = {
    metadata: { creationTimestamp: new Date(CREATED) },
    spec: { containers: [{ name: 'sandbox', image: 'image' }], imagePullSecrets },
  };
  const waits = { state: { waiting: { reason, message } }, ready: false, restartCount: 0 };
  const container = { name: 'sandbox', image: 'image', imageID: '', ...waits };
  return explainWaiting(pod, container, CREATED + seconds * 1_000);
}

describe('a pull with credentials, which the node may ask for before it may read them', () => {
  test('is refused for good only after the first attempt', () => {
    expect(said(0, 'ErrImagePull', DENIED)).toBeUndefined();
    expect(said(7.9, 'ErrImagePull', DENIED)).toBeUndefined();
    expect(said(8, 'ErrImagePull', DENIED)).toBe(REFUSAL);
  });

  test('has a minute of back-off, in which the node does not give its reason', () => {
    expect(said(59.9, 'ImagePullBackOff')).toBeUndefined();
    expect(said(60, 'ImagePullBackOff')).toContain('cannot be pulled');
  });

  test('fails at once for another reason', () => {
    expect(said(1, 'ErrImagePull', 'manifest unknown')).toContain('the registry has no such image');
  });

  test('fails at once without credentials', () => {
    expect(said(1, 'ErrImagePull', DENIED, [])).toBe(REFUSAL);
    expect(said(1, 'ImagePullBackOff', '', [])).toContain('cannot be pulled');
  });

  test('fails at once by a clock that is behind that of the cluster', () => {
    expect(said(-8, 'ErrImagePull', DENIED)).toBeUndefined();
    expect(said(-8.1, 'ErrImagePull', DENIED)).toBe(REFUSAL);
    expect(said(-8.1, 'ImagePullBackOff')).toContain('cannot be pulled');
  });
});
