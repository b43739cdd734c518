import { until } from '../polling.js';
import type { Client } from '../client.js';
import type { GatedService } from './gated-service.js';

const ATTACKERS = 3;
const CONNECTIONS_EACH = 3_400;
const POLICY = {
  rules: [{ direction: 'egress', action: 'allow', destination: { domain_suffix: 'test' } }],
};

/** Opens connections that stay, each with bytes of its own, and opens each again that ends. */
const ATTACK = `
import { connect } from 'node:net';
import { lookup } from 'node:dns/promises';
import { setTimeout as sleep } from 'node:timers/promises';
const { address } = await lookup('api.test');
const start = () => {
  const socket = connect(7, address, () => socket.write('\\0x'));
  socket.on('error', () => undefined).on('data', () => undefined);
  socket.on('close', () => setTimeout(start, 100));
};
for (let index = 0; index < ${CONNECTIONS_EACH}; index += 1) {
  start();
  if (index % 50 === 0) await sleep(50);
}
console.log('all were tried');
`;

/** Sandboxes of one organization open 10,000 connections. Returns the function that ends them. */
export async function attack(service: GatedService, by: Client): Promise<() => Promise<void>> {
  const ids: string[] = [];
  const end = async () => {
    for (const id of ids) await by.delete(`/v1/sandboxes/${id}`);
  };
  try {
    for (let index = 0; index < ATTACKERS; index += 1) {
      const rlimits = [{ resource: 'nofile', soft: 8_192, hard: 8_192 }];
      ids.push(await service.create(`attacker-${index}`, { policy: POLICY }, { rlimits, by }));
    }
    await Promise.all(ids.map(async (id) => service.nodeInBackground(id, ATTACK)));
    await until(
      async () => Promise.all(ids.map(async (id) => service.sh(id, 'cat /tmp/background'))),
      (outputs) => outputs.every((output) => output.includes('all were tried')),
    );
  } catch (error) {
    await end();
    throw error;
  }
  return end;
}

export interface Times {
  p50: number;
  p99: number;
  worst: number;
}

/** The times of requests with a connection each, in milliseconds. */
export async function usualTimes(service: GatedService, id: string, requests: number): Promise<Times> {
  const output = await service.node(
    id,
    `const times = [];
     for (let index = 0; index < ${requests}; index += 1) {
       const before = performance.now();
       const answer = await fetch('http://api.test/', { headers: { connection: 'close' } });
       if (!(await answer.text()).startsWith('hello')) throw new Error('refused');
       times.push(performance.now() - before);
     }
     times.sort((a, b) => a - b);
     const at = (part) => times[Math.floor(part * (times.length - 1))];
     console.log(JSON.stringify({ p50: at(0.5), p99: at(0.99), worst: at(1) }));
     process.exit();`,
  );
  return JSON.parse(output);
}
