import { beforeAll } from 'vitest';
import { openDockerTarget } from '../support/docker-guest.js';
import { describeDocker, makeImage } from '../support/docker.js';
import { guestConformance } from './guest-conformance.js';

describeDocker('a guest on Docker', () => {
  beforeAll(() => makeImage());

  guestConformance(openDockerTarget);
});
