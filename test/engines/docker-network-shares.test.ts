import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeDocker } from '../support/docker.js';
import { makeClientImage } from '../support/internet/client-image.js';
import { GatedService } from '../support/internet/gated-service.js';
import { Internet } from '../support/internet/internet.js';
import { describeNetns } from '../support/netns.js';
import { until } from '../support/polling.js';

const NUMBER = 4;
const ATTACKERS = 3;
const CONNECTIONS_EACH = 3_400;
const policy = {
  rules: [{ direction: 'egress', action: 'allow', destination: { domain_suffix: 'test' } }],
};

/** Opens connections that stay, each with bytes of its own. Prints the number that is open each second. */
const ATTACK = `
import { connect } from 'node:net';
import { lookup } from 'node:dns/promises';
import { setTimeout as sleep } from 'node:timers/promises';
const { address } = await lookup('api.test');
let open = 0;
const start = () => {
  const socket = connect(7, address, () => { open += 1; socket.write('\\0x'); });
  socket.on('error', () => undefined).on('data', () => undefined);
  socket.on('close', () => { open -= 1; setTimeout(start, 100); });
};
for (let index = 0; index < ${CONNECTIONS_EACH}; index += 1) {
  start();
  if (index % 50 === 0) await sleep(50);
}
console.log('all were tried');
`;

/** The times of requests with a connection each, in milliseconds. */
const USUAL_WORK = `
const times = [];
for (let index = 0; index < 40; index += 1) {
  const before = performance.now();
  const answer = await fetch('http://api.test/', { headers: { connection: 'close' } });
  if (!(await answer.text()).startsWith('hello')) throw new Error('refused');
  times.push(performance.now() - before);
}
times.sort((a, b) => a - b);
console.log(JSON.stringify({ p50: times[20], worst: times[39] }));
process.exit();
`;

describeDocker('the gateway between organizations', () => {
  describeNetns('with the firewall tools', () => {
    let internet: Internet;
    let service: GatedService;

    beforeAll(async () => {
      makeClientImage();
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
      const alone = JSON.parse(await service.node(victim, USUAL_WORK));
      const attackers: string[] = [];
      for (let index = 0; index < ATTACKERS; index += 1) {
        const rlimits = [{ resource: 'nofile', soft: 8_192, hard: 8_192 }];
        attackers.push(await service.create(`attacker-${index}`, { policy }, { rlimits, by: attacker }));
      }
      const attacks = attackers.map(async (id) => service.nodeInBackground(id, ATTACK));
      await Promise.all(attacks);
      await until(
        async () => Promise.all(attackers.map(async (id) => service.sh(id, 'cat /tmp/background'))),
        (outputs) => outputs.every((output) => output.includes('all were tried')),
      );
      const beside = JSON.parse(await service.node(victim, USUAL_WORK));
      console.log(`beside 10,000 connections: ${JSON.stringify({ alone, beside })}`);
      // Every request was answered. A ratio of times would depend on other work of the machine.
      expect(beside.p50).toBeLessThan(1_000);
      for (const id of attackers) await attacker.delete(`/v1/sandboxes/${id}`);
    });
  });
});
