import Fastify from 'fastify';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { ADMISSION, admitFairly } from '../../src/http/admission.js';
import { PACE, Pace } from '../../src/fairness/pace.js';

test('requests that take long do not leave an organization fewer places', async () => {
  const app = Fastify();
  onTestFinished(() => app.close());
  const pace = new Pace(PACE);
  admitFairly(app, pace, () => 'a');
  let [open, most] = [0, 0];
  app.get('/slow', async (_request, reply) => {
    open += 1;
    most = Math.max(most, open);
    await pause(200);
    open -= 1;
    return reply.send();
  });
  const ask = async () => app.inject({ method: 'GET', url: '/slow' });
  // Another organization is active too, so that each has its limit.
  const shared = setInterval(() => ['a', 'b'].forEach((key) => pace.see(key)), 10);
  onTestFinished(() => clearInterval(shared));
  for (let left = 10; left > 0; left -= 1) await ask();

  most = 0;
  await Promise.all(Array.from({ length: 20 }, ask));
  expect(most).toBe(ADMISSION.running.each);
});
