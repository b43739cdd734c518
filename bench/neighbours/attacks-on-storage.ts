import type { Attack, Attacker } from './attack.js';
import { pathHeader } from './usual-work.js';

const MIB = 1024 * 1024;

export const ATTACKS_ON_STORAGE = {
  uploads: {
    text: 'writes files of 16 MiB on 16 connections',
    async run(attacker) {
      const path = await newVolume(attacker);
      const body = Buffer.alloc(16 * MIB, 'x');
      attacker.begin();
      await attacker.flood(16, (index) => upload(attacker, path, `file-${index}`, body));
    },
  },
  copies: {
    text: 'copies a file of 256 MiB on 8 connections',
    async run(attacker) {
      const path = await newVolume(attacker);
      const { status } = await upload(attacker, path, 'from', Buffer.alloc(256 * MIB));
      attacker.note(status);
      attacker.begin();
      await attacker.flood(8, (index) =>
        attacker.call('POST', `${path}/copy`, { from: 'from', to: `to-${index}` }),
      );
    },
  },
  directories: {
    text: 'lists a directory of 2,000 files on 16 connections',
    async run(attacker) {
      const path = await newVolume(attacker);
      const empty = Buffer.alloc(0);
      let next = 0;
      const fill = async () => {
        while (next < 2_000 && !attacker.signal.aborted)
          await upload(attacker, path, `f-${(next += 1)}`, empty);
      };
      await Promise.all(Array.from({ length: 16 }, fill));
      attacker.begin();
      await attacker.flood(16, () =>
        attacker.client.call('GET', path, { headers: pathHeader('/'), signal: attacker.signal }),
      );
    },
  },
} satisfies Record<string, Attack>;

async function newVolume({ client }: Attacker): Promise<string> {
  const { id } = await client.json<{ id: string }>('POST', '/v1/volumes', { name: `v-${Date.now()}` });
  return `/v1/volumes/${id}/files`;
}

function upload({ client, signal }: Attacker, path: string, name: string, body: Buffer) {
  return client.call('PUT', `${path}/content`, { body, headers: pathHeader(name), signal });
}
