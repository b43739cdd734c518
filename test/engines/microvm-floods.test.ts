import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { fileLimit } from '../../src/engines/microvm/disks/file-limit.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import { isAlive } from '../../src/engines/microvm/processes.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import type { Client } from '../support/client.js';
import { sh, TestCommand } from '../support/guest.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm } from '../support/microvm/service.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { filesOf } from '../support/volume-files.js';

const MIB = 1024 ** 2;
const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const DISK_MIB = 64;
const CONSOLE_BYTES = 128 * 1024;
/** Twice the limit of the log, and a piece. */
const OUTPUT_BYTES = 21 * MIB;
const MOST_GROWTH_MIB = 200;

/**
 * Each line floods one way out of the machine. The disk is full before the others take the processor. Then come the
 * file server with requests and data, the log of the kernel, the network, the consoles and the log.
 */
const FLOODS = [
  'cat /dev/zero > /srv/full; touch /data/is-full',
  'sh /data/ports > /dev/null 2>&1 &',
  'for i in 1 2; do (while :; do ls -laR /data; stat /data/$RANDOM; done) > /dev/null 2>&1 & done',
  '(while :; do mkdir -p /data/d/$RANDOM/$RANDOM; done) 2> /dev/null &',
  '(while :; do dd if=/dev/zero of=/data/big bs=1M count=64 conv=fsync; done) 2> /dev/null &',
  '(while :; do dd if=/data/big of=/dev/null bs=4k iflag=direct; done) 2> /dev/null &',
  '(while :; do cat /dev/zero >> /srv/full; sleep 0.1; done) 2> /dev/null &',
  '(while :; do echo flood-of-the-kernel-log > /dev/kmsg; done) 2> /dev/null &',
  '(while :; do nc -w 1 192.0.2.1 9 < /dev/zero; done) > /dev/null 2>&1 &',
  'for tty in /dev/ttyS0 /dev/console; do (while :; do yes flood > $tty; sleep 1; done) 2> /dev/null & done',
  'while :; do yes "a line of the log that has no end"; done',
].join('\n');

/**
 * Process 1 of the machine has the ports open alone. Root of the sandbox takes the device from its driver and gives it
 * back, and then the ports are free.
 */
const PORT_FLOODS = `
until [ -e /data/take ]; do sleep 0.1; done
cd /sys/bus/virtio/drivers/virtio_console
for device in virtio*; do echo $device > unbind; echo $device > bind; done
until ls /sys/class/virtio-ports/*p3/name; do sleep 0.1; done
for port in /sys/class/virtio-ports/*; do
  (while :; do dd if=/dev/zero of=/dev/$(basename $port) bs=64k count=16 && echo done >> /data/flooded-$(cat $port/name); done) &
done
wait
`;

describeMicrovm('a virtual machine that floods every way out of it', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    dataDir = await makeMicrovmDirectory();
    service = await startTestService({ ...onMicrovm(dataDir), settings: { stopGraceMs: 5_000 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });

  const create = async (name: string, more: object): Promise<string> => {
    const { body } = await client.post(
      '/v1/sandboxes',
      {
        name,
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 192, disk_size_mib: DISK_MIB },
        mounts: [{ type: 'named', name: 'data', guest: '/data' }],
        ...more,
      },
      running,
    );
    expect(body.status, JSON.stringify(body)).toBe('running');
    return body.id;
  };

  test('holds up no neighbour and no request, keeps its bounds, and ends when it is told', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'data', capacity_gib: 1 });
    expect((await filesOf(client, volume.id).put('/ports', PORT_FLOODS)).status).toBe(200);
    const [neighbour, flooder] = await Promise.all([
      create('neighbour', { network: { enabled: false } }),
      create('flooder', { runtime: { cmd: ['sh', '-c', FLOODS] } }),
    ]);
    const places = placesOf(join(dataDir, 'microvm'), flooder);
    const record = (await readRecord(places))!;
    const { guest: other, release: releaseOther } = await service.runtime.openGuest(neighbour);
    const untilFlooded = async (...names: string[]) =>
      until(
        () => sh(other, `cd /data; ls ${names.join(' ')} | wc -l`),
        (found) => found === String(names.length),
      );
    const checkAnswers = async () => {
      for (let round = 0; round < 3; round += 1) {
        expect(await sh(other, 'echo answered > /data/answer; cat /data/answer')).toBe('answered');
        expect((await client.get(`/v1/sandboxes/${flooder}/metrics`)).status).toBe(200);
      }
    };

    const memory = watchMemory();
    // A session whose output nobody takes floods the port of the agents.
    const { guest, release } = await service.runtime.openGuest(flooder);
    const endless = new TestCommand(guest, ['yes', 'x'], { credit: 4_000_000, grants: false });
    await until(
      async () => Promise.resolve(sizeOf(places.output) + sizeOf(places.olderOutput)),
      (bytes) => bytes > 10 * MIB,
    );
    await untilFlooded('is-full');
    await checkAnswers();

    await sh(other, 'touch /data/take');
    await untilFlooded('flooded-control', 'flooded-output');
    // The session that was open gets the flood in the place of its frames.
    await endless.over;
    expect([endless.failure?.kind, guest.gone.aborted]).toEqual(['other', true]);
    await expect(service.runtime.openGuest(flooder)).rejects.toThrow();
    await untilFlooded('flooded-agent');
    await checkAnswers();
    releaseOther();
    // The service runs in the process of the test. Its garbage counts. Data that waits would pass the limit.
    expect(memory.most() - memory.before).toBeLessThan(MOST_GROWTH_MIB * MIB);

    expect(isAlive(record)).toBe(true);
    expect(sizeOf(join(places.run, 'console'))).toBeLessThanOrEqual(CONSOLE_BYTES);
    expect(sizeOf(places.output) + sizeOf(places.olderOutput)).toBeLessThanOrEqual(OUTPUT_BYTES);
    expect(sizeOf(places.disk)).toBeLessThanOrEqual(fileLimit(DISK_MIB) * MIB);
    const files = readdirSync(places.run).map((name) => sizeOf(join(places.run, name)));
    expect(files.reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(2 * MIB);
    // The most that it ever had: a supervisor keeps nothing of the data that it passes on.
    const status = readFileSync(`/proc/${record.supervisor.pid}/status`, 'utf8');
    expect(Number(/^VmHWM:\s+(\d+) kB/m.exec(status)![1])).toBeLessThan(4 * 1024);

    await client.post(`/v1/sandboxes/${flooder}/stop`, {});
    await untilStatus(client, flooder, 'stopped');
    expect(isAlive(record)).toBe(false);
    release();
    // Emulated processors take minutes beside a busy test.
  });
});

/** The resident memory of this process now, and the most since then. */
function watchMemory(): { before: number; most: () => number } {
  const before = process.memoryUsage.rss();
  let most = before;
  const watch = setInterval(() => (most = Math.max(most, process.memoryUsage.rss())), 100);
  onTestFinished(() => clearInterval(watch));
  return { before, most: () => most };
}

/** 0: there is no such file. */
function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
