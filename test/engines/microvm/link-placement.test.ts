import { openSync } from 'node:fs';
import { expect, test } from 'vitest';
import { StartRefusedError } from '../../../src/engine/runtime.js';
import { parsePool } from '../../../src/engines/microvm/network/address-pool.js';
import { LinkPlacement } from '../../../src/engines/microvm/network/link-placement.js';

const LINK = 'svtest-3';

function place() {
  const pool = parsePool('10.231.99.0/24')!;
  const placement = new LinkPlacement(pool, 'svtest-');
  placement.keep(new Set([LINK]));
  return { placement, address: pool.address(3)! };
}

test('the address of a paused sandbox is given to no other one, also not by name', async () => {
  const { placement, address } = place();
  const make = async () => Promise.reject(new Error('it was made'));
  for (const continued of [undefined, 'svtest-4']) {
    const refused = placement.place(make, { mtu: 1500, wanted: address, continued });
    await expect(refused).rejects.toThrow(`cannot give out ${address}`);
    await expect(refused).rejects.toThrow(StartRefusedError);
  }
});

test.each([true, false])(
  'a resume waits until the kernel has removed its earlier link; named: %s',
  async (isNamed) => {
    const { placement, address } = place();
    let tried = 0;
    const make = async () => {
      tried += 1;
      if (tried < 3) throw new Error('RTNETLINK answers: File exists');
      return Promise.resolve(openSync('/dev/null', 'r'));
    };
    const wanted = isNamed ? address : undefined;
    const made = await placement.place(make, { mtu: 1500, wanted, continued: LINK });
    expect([made.place.link, made.place.address, tried]).toEqual([LINK, address, 3]);
    made.close();
  },
);

test('a link that stays fails the resume, and not for good: its memory is still there', async () => {
  const { placement } = place();
  const make = async () => Promise.reject(new Error('RTNETLINK answers: File exists'));
  const failed = placement.place(make, { mtu: 1500, continued: LINK });
  await expect(failed).rejects.toThrow('is still there');
  await expect(failed).rejects.not.toThrow(StartRefusedError);
});
