import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openNeighbourhood, type Attacked } from '../../bench/neighbours.js';
import { ATTACKS } from '../../bench/neighbours/attacks.js';
import { KINDS, type Kind } from '../../bench/neighbours/usual-work.js';
import { describeDocker, IMAGE, makeImage, SOCKET } from '../support/docker.js';

/** The work that only containers do. */
const OF_CONTAINERS: readonly Kind[] = ['exec', 'inotify', 'terminal', 'preview'];
/** Those whose effect on others passes through the service; the others burn the machine. */
const WITH_CONTAINERS = ['commands', 'sessions', 'logs', 'guests: output', 'previews'];

const dockerSocket = SOCKET;
const SECONDS = 1;

type Neighbourhood = Awaited<ReturnType<typeof openNeighbourhood>>;

/** A busy machine alone may cause an error. */
async function measure(neighbourhood: Neighbourhood, attack: string): Promise<Attacked> {
  for (let attempt = 1; ; attempt += 1) {
    const measured = await neighbourhood.measure(attack, SECONDS);
    if (measured.attacked.errors.length === 0 || attempt === 3) return measured;
  }
}

/** Times are not compared here: `npm run bench -- neighbours` does that on a quiet machine. */
function expectNoHarm({ answers, attacked }: Attacked, without: readonly Kind[]): void {
  expect(Object.values(answers).reduce((sum, count) => sum + count, 0)).toBeGreaterThan(0);
  expect(attacked.errors).toEqual([]);
  for (const kind of KINDS.filter((each) => !without.includes(each))) {
    expect(attacked.times[kind].length, kind).toBeGreaterThan(0);
  }
}

describe('an organization whose neighbour does its worst gets every answer', () => {
  // An attack may leave rows, files and queued starts to the next one, which makes that harder.
  let neighbourhood: Neighbourhood;
  beforeAll(async () => {
    neighbourhood = await openNeighbourhood({ image: undefined, dockerSocket });
  });
  afterAll(() => neighbourhood.close());

  test.each(Object.keys(ATTACKS).filter((name) => !ATTACKS[name]!.containers))('%s', async (attack) => {
    expectNoHarm(await measure(neighbourhood, attack), OF_CONTAINERS);
  });
});

describeDocker('an organization whose neighbour does its worst in containers gets every answer', () => {
  test.each(WITH_CONTAINERS)('%s', async (attack) => {
    makeImage();
    const neighbourhood = await openNeighbourhood({ image: IMAGE, dockerSocket });
    try {
      expectNoHarm(await measure(neighbourhood, attack), []);
    } finally {
      await neighbourhood.close();
    }
  });
});
