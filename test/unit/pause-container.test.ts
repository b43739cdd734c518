import { expect, test } from 'vitest';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../../src/engines/docker/container.js';
import { ownerOf, PAUSE_LABEL } from '../../src/engines/docker/network/pause-container.js';

const ID = '01a22188-89b2-7e98-8000-0342ede80a25';
const OURS = { [INSTANCE_LABEL]: 'i' };

test('the name of a pause container says whose it is', () => {
  const labels = { ...OURS, [PAUSE_LABEL]: 'prepared-1' };
  expect(ownerOf({ Names: [`/sandkeep-net-${ID}`], Labels: labels })).toBe(ID);
  expect(ownerOf({ Names: ['/sandkeep-net-prepared-1'], Labels: labels })).toBe('prepared-1');
});

test('a sandbox is never taken for a pause container, whatever its name and its image', () => {
  // The labels of its image are there without their values.
  const labels = { ...OURS, [SANDBOX_LABEL]: ID, [PAUSE_LABEL]: '' };
  expect(ownerOf({ Names: ['/sandkeep-net-x-ede80a25'], Labels: labels })).toBeUndefined();
  expect(ownerOf({ Names: [`/sandkeep-net-${ID}`], Labels: labels })).toBeUndefined();
  expect(ownerOf({ Names: [`/sandkeep-net-${ID}`], Labels: OURS })).toBeUndefined();
});
