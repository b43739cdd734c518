import { afterAll, beforeAll, expect, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import { describeDocker } from '../support/docker.js';
import { makeClientImage } from '../support/internet/client-image.js';
import { GatedService } from '../support/internet/gated-service.js';
import { killGateway, type FirstAnswer } from '../support/internet/gateway-kill.js';
import { Internet } from '../support/internet/internet.js';
import { describeNetns } from '../support/netns.js';
import { until } from '../support/polling.js';
import { kill } from '../support/processes.js';

const NUMBER = 5;
/** A program that has run for so long is started again at once. */
const STEADY_MS = 5_000;
/** A machine that is overloaded may need more time than queries and connections wait. */
const ATTEMPTS = 3;

describeDocker('the clients of a gateway that is killed', () => {
  describeNetns('with the firewall tools', () => {
    let internet: Internet;
    let service: GatedService;
    let id: string;

    beforeAll(async () => {
      makeClientImage();
      internet = await Internet.start({
        number: NUMBER,
        zone: (address) => ({ 'api.test': { addresses: [address(10)] } }),
      });
      service = await GatedService.start(internet);
      const policy = {
        rules: [{ direction: 'egress', action: 'allow', destination: { domain_suffix: 'test' } }],
      };
      id = await service.create('client', { policy });
    });
    afterAll(async () => {
      await service?.close();
      await internet?.close();
    });

    test('are answered at their first attempt, also by musl, which ignores refusals of the kernel', async () => {
      let answers: FirstAnswer[] = [];
      for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
        await sleep(STEADY_MS);
        answers = await killGateway(service, id);
        if (answers.every(({ isAnswered }) => isAnswered)) break;
      }
      console.log(answers.map(({ client, millis }) => `${client}: ${millis} ms`).join(', '));
      expect(answers.filter(({ isAnswered }) => !isAnswered)).toEqual([]);
    });

    test('are refused at once while the service is down, and are answered by the next one', async () => {
      kill('SIGKILL', service.served.pid);
      await service.served.exited;
      // A resolver that gets no answer asks again after five seconds, and a connection has none for two minutes.
      const refused = await service.sh(
        id,
        `timeout 4 getent ahostsv4 api.test; echo "name $?"
         timeout 4 curl -sS http://${internet.address(10)}/; echo "connection $?"`,
      );
      await service.restart('SIGKILL');
      expect(refused).toContain('name 2');
      expect(refused).toContain('connection 7');
      await until(
        async () => service.sh(id, 'curl -sS http://api.test/'),
        (answer) => answer.includes('hello'),
      );
    });
  });
});
