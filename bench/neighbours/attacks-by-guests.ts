import { channelSide } from '../exec/channel.js';
import type { Attack, Attacker } from './attack.js';
import { PreviewClient, SERVER } from './preview.js';
import { TAKE, withTake } from './take.js';

const containers = true;

/** Commands that take a resource of the machine. */
const BURNERS = {
  cpu: ['six sandboxes that compute', 'while :; do :; done'],
  memory: [
    'six sandboxes that fill their memory',
    'while :; do tr "\\0" x < /dev/zero | tail -c 400m > /dev/null; done',
  ],
  processes: [
    'six sandboxes that start processes without end',
    'f() { f | f & }; while :; do f; sleep 1; done',
  ],
  disk: [
    'six sandboxes that write files',
    'while :; do dd if=/dev/zero of=/tmp/f bs=1M count=200 conv=fsync; rm /tmp/f; done',
  ],
  output: ['six sandboxes that write to their logs', 'yes'],
  inotify: ['six sandboxes that take all inotify instances', `exec ${TAKE} inotify all`],
  terminals: ['six sandboxes that take all terminals', `exec ${TAKE} terminals all`],
} as const;

export const ATTACKS_BY_GUESTS: Record<string, Attack> = {
  ...Object.fromEntries(
    Object.entries(BURNERS).map(([name, [text, script]]): [string, Attack] => [
      `guests: ${name}`,
      {
        text,
        containers,
        async run(attacker) {
          for (let left = 6; left > 0; left -= 1) attacker.note(await burn(attacker, script));
          attacker.begin();
          await attacker.untilTheEnd();
        },
      },
    ]),
  ),
  commands: {
    text: 'reads commands that write without end, on 8 connections',
    containers,
    async run(attacker) {
      const id = await attacker.create(['sleep', '1000000']);
      attacker.begin();
      await attacker.flood(8, async () => {
        const response = await attacker.client.open('POST', `/v1/sandboxes/${id}/exec`, {
          body: JSON.stringify({ cmd: 'yes' }),
          headers: { accept: 'text/event-stream' },
          signal: attacker.signal,
        });
        for await (const _ of response);
        return { status: response.statusCode! };
      });
    },
  },
  sessions: {
    text: 'opens channels and runs commands on 16 connections',
    containers,
    async run(attacker) {
      const id = await attacker.create(['sleep', '1000000']);
      const { address, key } = attacker.client;
      attacker.begin();
      await attacker.flood(16, async () => {
        await channelSide(address, key, id).run(['true']);
      });
    },
  },
  previews: {
    text: 'requests to its own preview on 64 connections',
    containers,
    run: (attacker) => visit(attacker, '/', 64),
  },
  'preview downloads': {
    text: 'downloads from its own preview on 32 connections',
    containers,
    run: (attacker) => visit(attacker, '/large', 32),
  },
  logs: {
    text: 'follows a log that grows without end, on 8 connections',
    containers,
    run: (attacker) => followLog(attacker, 'yes'),
  },
  'long logs': {
    text: 'reads the long log of an ended command, on 8 connections',
    containers,
    run: (attacker) => followLog(attacker, 'yes | head -n 2000000; sleep 1000000'),
  },
};

async function visit(attacker: Attacker, path: string, connections: number): Promise<void> {
  const preview = await PreviewClient.open(attacker.client, await attacker.create(SERVER));
  attacker.begin();
  await attacker.flood(connections, () => preview.get(path, attacker.signal));
  preview.close();
}

async function burn(attacker: Attacker, script: string): Promise<string> {
  const resources = { vcpus: 1, memory_mib: 512 };
  await attacker.create(['sh', '-c', script], { resources, ...withTake() });
  return 'running';
}

async function followLog(attacker: Attacker, script: string): Promise<void> {
  const id = await attacker.create(['sh', '-c', script]);
  attacker.begin();
  await attacker.flood(8, async () => {
    const response = await attacker.client.open('GET', `/v1/sandboxes/${id}/logs`, {
      signal: attacker.signal,
    });
    for await (const _ of response);
    return { status: response.statusCode! };
  });
}
