import type { V1Pod } from '@kubernetes/client-node';
import { expect, test } from 'vitest';
import { imageDigestOf } from '../../src/engines/kubernetes/image-digest.js';

const [TAGGED, NAMED] = [`sha256:${'a'.repeat(64)}`, `sha256:${'b'.repeat(64)}`];

test.each([
  // The engine of Docker, with and without a registry.
  ['registry.local/team/app:1', `docker-pullable://registry.local/team/app@${TAGGED}`, TAGGED],
  ['busybox:local', `docker://${TAGGED}`, TAGGED],
  ['busybox', `docker-pullable://busybox@${TAGGED}`, TAGGED],
  // containerd and CRI-O.
  ['busybox', `docker.io/library/busybox@${TAGGED}`, TAGGED],
  ['busybox:local', TAGGED, TAGGED],
  // A node names the image by any repository that it came from.
  ['registry.local/team/app:1', `docker-pullable://registry.local/another/app@${TAGGED}`, undefined],
  [`registry.local/team/app@${NAMED}`, `docker-pullable://registry.local/another/app@${TAGGED}`, NAMED],
  ['busybox', '', undefined],
  ['busybox', 'something else', undefined],
])('the digest of %s in the words of a node: %s', (image, imageID, digest) => {
  const container = { name: 'sandbox', image };
  const pod = {
    spec: { containers: [container] },
    status: { containerStatuses: [{ ...container, imageID }] },
  };
  expect(imageDigestOf(pod as unknown as V1Pod)).toBe(digest);
});
