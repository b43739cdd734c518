import { afterAll, beforeAll, expect, test } from 'vitest';
import type { GuestAgent } from '../../src/guest/agent.js';
import { sh } from '../support/guest.js';
import { startMachine, type Machine } from '../support/microvm/machine.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { censusOf } from '../support/docker-guest.js';
import { guestConformance } from './guest-conformance.js';

describeMicrovm('a guest in a virtual machine', () => {
  let machine: Machine;
  let guest: GuestAgent;
  beforeAll(async () => {
    machine = await startMachine();
    guest = await machine.connect();
  });
  afterAll(async () => {
    guest?.close();
    await machine?.kill();
  });

  test('has the root of its image', async () => {
    expect(await sh(guest, 'hostname; id -u; cat /proc/1/comm')).toBe('box\n0\ninit');
  });

  guestConformance(async () => ({
    guest,
    directory: await sh(guest, 'mktemp -d /tmp/XXXXXX'),
    census: () => censusOf(guest),
    close: () => Promise.resolve(),
  }));
});
