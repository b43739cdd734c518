import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeDocker } from '../support/docker.js';
import { attack, usualTimes } from '../support/internet/connection-attack.js';
import { makeClientImage } from '../support/internet/client-image.js';
import { GatedService } from '../support/internet/gated-service.js';
import { Internet } from '../support/internet/internet.js';
import { describeNetns } from '../support/netns.js';
import { until } from '../support/polling.js';
import { prepareImages } from '../support/prepare-images.js';

const NUMBER = 4;
const REQUESTS = 40;
const policy = {
  rules: [{ direction: 'egress', action: 'allow', destination: { domain_suffix: 'test' } }],
};

describeDocker('the gateway between organizations', () => {
  describeNetns('with the firewall tools', () => {
    let internet: Internet;
    let service: GatedService;

    prepareImages(makeClientImage);
    beforeAll(async () => {
      internet = await Internet.start({
        number: NUMBER,
        zone: (address) => ({ 'api.test': { addresses: [address(10)] } }),
      });
      service = await GatedService.start(internet);
    });
    afterAll(async () => {
      await service?.close();
      await internet?.close();
    });

    test('answers one beside another that opens 10,000 connections', async () => {
      const victim = await service.create('victim', { policy });
      const attacker = await service.newOrg('attacker');
      const alone = await usualTimes(service, victim, REQUESTS);
      const end = await attack(service, attacker);
      // Every request is answered. A ratio of times would depend on other work of the machine, which may also be
      // busy in one round of requests.
      const typical = await until(
        async () => {
          const beside = await usualTimes(service, victim, REQUESTS);
          console.log(`beside 10,000 connections: ${JSON.stringify({ alone, beside })}`);
          return beside.p50;
        },
        (p50) => p50 < 1_000,
      );
      expect(typical).toBeLessThan(1_000);
      await end();
    });
  });
});
