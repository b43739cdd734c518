import { afterAll, beforeAll, expect, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import { describeDocker } from '../support/docker.js';
import { makeClientImage } from '../support/internet/client-image.js';
import { GatedService } from '../support/internet/gated-service.js';
import { killGateway, type FirstAnswer } from '../support/internet/gateway-kill.js';
import { Internet } from '../support/internet/internet.js';
import { transfer } from '../support/internet/transfers.js';
import { describeNetns } from '../support/netns.js';
import { until } from '../support/polling.js';
import { prepareImages } from '../support/prepare-images.js';
import { kill } from '../support/processes.js';

const NUMBER = 5;
/** A program that has run for so long is started again at once. */
const STEADY_MS = 5_000;
/** A machine that is overloaded may need more time than queries and connections wait. */
const ATTEMPTS = 6;

const MIB = 1024 * 1024;
const RATE = MIB;
const WHOLE = 3 * MIB;
/** The gateway reports its counts so often. */
const REPORT_MS = 5_000;
const IN_SOCKETS = 32 * MIB;
const TRANSFER_MIB = 100;
const MOST_GROWTH_MIB = 64;
const POLICY = {
  rules: [{ direction: 'egress', action: 'allow', destination: { domain_suffix: 'test' } }],
};
const sum = (numbers: number[]) => numbers.reduce((total, each) => total + each, 0);

describeDocker('the clients of a gateway that is killed', () => {
  describeNetns('with the firewall tools', () => {
    let internet: Internet;
    let service: GatedService;
    let id: string;

    prepareImages(makeClientImage);
    beforeAll(async () => {
      internet = await Internet.start({
        number: NUMBER,
        zone: (address) => ({ 'api.test': { addresses: [address(10)] } }),
      });
      service = await GatedService.start(internet, ['--sandbox-bandwidth-mbits', '0']);
      id = await service.create('client', { policy: POLICY });
    });
    afterAll(async () => {
      await service?.close();
      await internet?.close();
    });

    test('find the bytes of a cut transfer in the record, but for a bounded part', async () => {
      const recorded = await service.create('recorded', { policy: POLICY, record: true });
      const download = (bytes: number, to = '/dev/null', more = '') =>
        `curl -sS ${more} -o ${to} -w '%{size_download}' http://api.test/bytes/${bytes}`;
      /** The number of bytes that arrived until the cut, which comes after `ms` of the transfer or later. */
      const cutAfter = async (ms: number, cut: () => Promise<unknown> | void) => {
        // A connection that comes before the next gateway is refused, and the transfer would not begin.
        await until(
          async () => service.sh(recorded, `${download(0)}; echo " $?"`),
          (output) => output.trim() === '0 0',
        );
        const limited = download(100 * MIB, '/tmp/part', `--limit-rate ${RATE}`);
        const transfer = service.sh(recorded, `rm -f /tmp/part; ${limited}; true`);
        // The connection has bytes, and the transfer has gone on for that time.
        await until(
          async () => Number(await service.sh(recorded, 'cat /tmp/part 2>/dev/null | head -c 65536 | wc -c')),
          (bytes) => bytes > 0,
        );
        await sleep(ms);
        await cut();
        return Number(/(\d+)$/.exec(await transfer)![1]);
      };
      const whole = async () =>
        until(
          async () => service.sh(recorded, download(WHOLE)),
          (output) => output === String(WHOLE),
        );
      /** A usual stop writes everything that the service has. */
      const inRecord = async () => {
        await service.restart('SIGTERM');
        const query = { event_type: 'network_destination_used', resource_id: recorded, limit: 100 };
        const { data } = (await service.client.get('/v1/events', query)).body;
        return sum(data.map(({ payload }: any) => payload.received_bytes));
      };

      // Long against the interval: a busy machine reports seconds late.
      const first = await cutAfter(6 * REPORT_MS, () => kill('SIGKILL', service.gatewayPid()!));
      await whole();
      const afterGateway = await inRecord();
      // The gateway reports every five seconds, and its last report is lost. Sockets hold bytes that the client never
      // got.
      expect(afterGateway).toBeGreaterThan(WHOLE + first / 4);
      expect(afterGateway).toBeLessThan(WHOLE + first + IN_SOCKETS);

      const second = await cutAfter(REPORT_MS, async () => service.restart('SIGKILL'));
      await whole();
      const afterService = (await inRecord()) - afterGateway;
      // The service has the counts of a minute in its memory, and they are lost. Nothing is counted twice.
      expect(afterService).toBeGreaterThanOrEqual(WHOLE);
      expect(afterService).toBeLessThan(WHOLE + second + IN_SOCKETS);
      const { body } = await service.client.get('/v1/events', { resource_id: recorded, limit: 1 });
      expect(body.data).toHaveLength(1);
    });

    test.each([
      ['passed on', {}, '-k'],
      // The client trusts the authority of the installation, and not that of the server.
      ['decrypted', { enabled: true }, ''],
    ])('let a large transfer that is %s pass with a flat memory', async (_, tls, option) => {
      const network = { policy: POLICY, tls: { ...tls, upstream_ca_cert: [internet.authority.root] } };
      const transferring = await service.create('transferring', network);
      const transfers = await transfer(service, transferring, { mib: TRANSFER_MIB, option });
      console.log(transfers);
      for (const { growthMib } of transfers) expect(growthMib).toBeLessThan(MOST_GROWTH_MIB);
      await service.client.delete(`/v1/sandboxes/${transferring}`);
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
      const ask = `timeout 4 getent ahostsv4 api.test; echo "name $?"
         timeout 4 curl -sS http://${internet.address(10)}/; echo "connection $?"`;
      let refused = '';
      try {
        // A busy machine may need four seconds for the programs alone.
        refused = await until(
          () => service.sh(id, ask),
          (told) => told.includes('name 2') && told.includes('connection 7'),
        );
      } finally {
        await service.restart('SIGKILL');
      }
      expect(refused).toContain('connection 7');
      await until(
        async () => service.sh(id, 'curl -sS http://api.test/'),
        (answer) => answer.includes('hello'),
      );
    });
  });
});
