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
  let neighbourhood: Awaited<ReturnType<typeof openNeighbourhood>>;
  beforeAll(async () => {
    neighbourhood = await openNeighbourhood({ image: undefined, dockerSocket });
  });
  afterAll(() => neighbourhood.close());

  test.each(Object.keys(ATTACKS).filter((name) => !ATTACKS[name]!.containers))('%s', async (attack) => {
    expectNoHarm(await neighbourhood.measure(attack, SECONDS), OF_CONTAINERS);
  });
});

describeDocker('an organization whose neighbour does its worst in containers gets every answer', () => {
  test.each(WITH_CONTAINERS)('%s', async (attack) => {
    makeImage();
    const neighbourhood = await openNeighbourhood({ image: IMAGE, dockerSocket });
    try {
      expectNoHarm(await neighbourhood.measure(attack, SECONDS), []);
    } finally {
      await neighbourhood.close();
    }
  });
});
