import type { Attack } from './attack.js';
import { ATTACKS_BY_GUESTS } from './attacks-by-guests.js';
import { ATTACKS_ON_CONNECTIONS } from './attacks-on-connections.js';
import { ATTACKS_ON_STORAGE } from './attacks-on-storage.js';
import { pathHeader, specOf } from './usual-work.js';

const YEAR = `since=${new Date(Date.now() - 365 * 86_400_000).toISOString().slice(0, 10)}`;
const MIB = 1024 * 1024;

const ATTACKS_BY_REQUESTS = {
  creates: {
    text: 'creates, starts and deletes sandboxes on 32 connections',
    async run(attacker) {
      attacker.begin();
      await attacker.flood(32, async () => {
        const made = await attacker.call(
          'POST',
          '/v1/sandboxes?start=true',
          specOf(attacker.image, ['sleep', '9']),
        );
        if (made.status >= 300) return made;
        return attacker.call('DELETE', `/v1/sandboxes/${(JSON.parse(made.text) as { id: string }).id}`);
      });
    },
  },
  starts: {
    text: 'starts a sandbox as large as the machine and 40 small ones',
    async run(attacker) {
      attacker.begin();
      const resources = { vcpus: 8, memory_mib: 16_384 };
      for (let left = 6; left > 0; left -= 1) {
        const large = { ...specOf(attacker.image, ['sleep', '9']), resources };
        attacker.note((await attacker.call('POST', '/v1/sandboxes?start=true', large)).status);
      }
      await attacker.flood(40, async () => {
        const made = await attacker.call(
          'POST',
          '/v1/sandboxes?start=true&wait_for=running&wait_timeout=5',
          specOf(attacker.image, ['sleep', '9']),
        );
        if (made.status >= 300) return made;
        return attacker.call('DELETE', `/v1/sandboxes/${(JSON.parse(made.text) as { id: string }).id}`);
      });
    },
  },
  lists: {
    text: 'lists 100 sandboxes on 200 connections',
    async run(attacker) {
      for (let left = 150; left > 0; left -= 1) {
        await attacker.call('POST', '/v1/sandboxes', specOf(attacker.image, ['true']));
      }
      attacker.begin();
      await attacker.flood(200, () => attacker.call('GET', '/v1/sandboxes?limit=100'));
    },
  },
  keys: {
    text: 'lists 100 events with 20 keys on 200 connections',
    async run(attacker) {
      const keys: string[] = [];
      for (let left = 20; left > 0; left -= 1) {
        const made = await attacker.client.json<{ key: string }>('POST', '/v1/keys', {
          name: `key ${left}`,
          scopes: ['events:read'],
        });
        keys.push(made.key);
      }
      attacker.begin();
      await attacker.flood(200, (index) =>
        attacker.client.call('GET', '/v1/events?limit=100', {
          signal: attacker.signal,
          headers: { authorization: `Bearer ${keys[index % keys.length]}` },
        }),
      );
    },
  },
  exports: {
    text: 'exports its audit events on 50 connections',
    async run(attacker) {
      attacker.begin();
      await attacker.flood(50, () => attacker.call('GET', '/v1/events/export'));
    },
  },
  usage: {
    text: 'reads a year of usage on 50 connections',
    async run(attacker) {
      attacker.begin();
      await attacker.flood(50, () => attacker.call('GET', `/v1/billing/usage/sandbox?${YEAR}`));
    },
  },
  waits: {
    text: 'waits for sandboxes that find no place, on 600 connections',
    async run(attacker) {
      attacker.begin();
      const resources = { vcpus: 8, memory_mib: 16_384 };
      await attacker.flood(600, () =>
        attacker.call('POST', '/v1/sandboxes?start=true&wait_for=running', {
          ...specOf(attacker.image, ['sleep', '9']),
          resources,
        }),
      );
    },
  },
  refusals: {
    text: 'sends requests that are refused, on 60 connections',
    async run(attacker) {
      attacker.begin();
      await attacker.flood(60, () => attacker.call('POST', '/v1/keys', {}));
    },
  },
  nesting: {
    text: 'sends 8 million opening brackets on 8 connections',
    async run(attacker) {
      const body = '['.repeat(8_000_000);
      attacker.begin();
      await attacker.flood(8, () =>
        attacker.client.call('POST', '/v1/sandboxes', { body, signal: attacker.signal }),
      );
    },
  },
  fields: {
    text: 'sends objects of a million unknown fields on 8 connections',
    async run(attacker) {
      const fields = Array.from({ length: 1_000_000 }, (_, index) => `"f${index}":0`);
      const body = `{${fields.join(',')}}`;
      attacker.begin();
      await attacker.flood(8, () =>
        attacker.client.call('POST', '/v1/sandboxes', { body, signal: attacker.signal }),
      );
    },
  },
  specifications: {
    text: 'creates sandboxes with as much environment as is accepted, and lists them on 16 connections',
    async run(attacker) {
      for (const bytes of [15 * MIB, MIB, 48 * 1024, 16 * 1024]) {
        const env = Array.from({ length: Math.ceil(bytes / 4_000) }, (_, index) => ({
          key: `V${index}`,
          value: 'x'.repeat(3_900),
        }));
        const runtime = { cmd: ['true'] };
        for (let left = 20; left > 0; left -= 1) {
          const request = { ...specOf(attacker.image, []), runtime, env };
          // The connection may end before a body that is too large is sent.
          const made = await attacker.call('POST', '/v1/sandboxes', request).catch(() => undefined);
          attacker.note(made?.status ?? 'cut');
          if (!made || made.status >= 300) break;
        }
      }
      attacker.begin();
      await attacker.flood(16, () => attacker.call('GET', '/v1/sandboxes?limit=100'));
    },
  },
  downloads: {
    text: 'reads a file of 64 MiB on 32 connections',
    async run(attacker) {
      const { id } = await attacker.client.json<{ id: string }>('POST', '/v1/volumes', {
        name: `v-${Date.now()}`,
      });
      const path = `/v1/volumes/${id}/files/content`;
      const body = Buffer.alloc(64 * MIB, 'x');
      attacker.note((await attacker.client.call('PUT', path, { body, headers: pathHeader('large') })).status);
      attacker.begin();
      await attacker.flood(32, async () => {
        const response = await attacker.client.open('GET', path, {
          headers: pathHeader('large'),
          signal: attacker.signal,
        });
        for await (const _ of response);
        return { status: response.statusCode! };
      });
    },
  },
} satisfies Record<string, Attack>;

export const ATTACKS: Readonly<Record<string, Attack>> = {
  ...ATTACKS_BY_REQUESTS,
  ...ATTACKS_ON_CONNECTIONS,
  ...ATTACKS_ON_STORAGE,
  ...ATTACKS_BY_GUESTS,
};
