import { expect, it } from 'vitest';
import { KernelSets } from '../../src/machine-network/gateway/kernel-sets.js';

const MOST = 16_384;
const POLICY = {
  rules: [
    { direction: 'egress' as const, action: 'allow' as const, destination: { domain_suffix: 'example.com' } },
  ],
};

/** A set of the kernel with its size, which fails as that one does. */
function kernel() {
  const elements = new Set<string>();
  const scripts: string[] = [];
  const apply = (script: string) => {
    scripts.push(script);
    for (const line of script.trimEnd().split('\n')) {
      const [, action, address] =
        /^(add|delete) element inet sandkeep d0 \{ (\S+)(?: timeout \d+s)? \}$/.exec(line)!;
      if (action === 'add') elements.add(address!);
      else if (!elements.delete(address!)) return Promise.reject(new Error('no such element'));
      if (elements.size > MOST) return Promise.reject(new Error('the set is full'));
    }
    return Promise.resolve();
  };
  return { elements, scripts, sets: new KernelSets(POLICY, apply) };
}

function addressesFrom(first: number, count: number): string[] {
  return Array.from(
    { length: count },
    (_, at) => `9.${(first + at) >> 16}.${((first + at) >> 8) & 255}.${(first + at) & 255}`,
  );
}

it('makes room in a full set, for the elements that end first', async () => {
  const { elements, sets } = kernel();
  expect(await sets.bind('short.example.com', addressesFrom(0, 1_000), 60)).toBe(true);
  expect(await sets.bind('long.example.com', addressesFrom(1_000, MOST - 1_000), 3_600)).toBe(true);
  // Some have ended in the kernel, which has not said so.
  for (const address of addressesFrom(0, 100)) elements.delete(address);
  expect(await sets.bind('new.example.com', ['10.0.0.1', '10.0.0.2'], 60)).toBe(true);
  expect(elements.has('10.0.0.1')).toBe(true);
  expect(elements.size).toBeLessThanOrEqual(MOST);
  for (const address of addressesFrom(1_000, MOST - 1_000)) expect(elements.has(address)).toBe(true);
});

it('leaves the kernel alone while an element lives long enough', async () => {
  const { scripts, sets } = kernel();
  await sets.bind('a.example.com', ['9.9.9.9'], 60);
  await sets.bind('a.example.com', ['9.9.9.9'], 59);
  await sets.bind('other.test', ['9.9.9.10'], 60);
  expect(scripts).toHaveLength(1);
});
