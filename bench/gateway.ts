import { loadavg } from 'node:os';
import { table } from '../src/cli/table.js';
import { ExplainedError } from '../src/lib/explained-error.js';
import { sleep } from '../src/lib/sleep.js';
import { makeClientImage } from '../test/support/internet/client-image.js';
import { attack, usualTimes, type Times } from '../test/support/internet/connection-attack.js';
import { GatedService } from '../test/support/internet/gated-service.js';
import { killGateway } from '../test/support/internet/gateway-kill.js';
import { Internet } from '../test/support/internet/internet.js';
import { transfer } from '../test/support/internet/transfers.js';
import { median } from './median.js';

const NUMBER = 251;
/** A program that has run for so long is started again at once. */
const STEADY_MS = 5_000;
const REQUESTS = 500;
const POLICY = {
  rules: [{ direction: 'egress', action: 'allow', destination: { domain_suffix: 'test' } }],
};

export interface GatewayOptions {
  kills: number;
  mib: number;
  rounds: number;
  starts: number;
  /** Names of parts; empty: all. */
  only: readonly string[];
}

type Part = (service: GatedService, internet: Internet, options: GatewayOptions) => Promise<void>;

const PARTS: Record<string, Part> = { kills, memory, neighbours, plain, starts };

/** The gateway after a kill, in large transfers and beside many connections, and the price of its presence. */
export async function gateway(options: GatewayOptions): Promise<void> {
  const unknown = options.only.find((name) => !PARTS[name]);
  if (unknown !== undefined)
    throw new ExplainedError(`there is no part "${unknown}"; there are: ${Object.keys(PARTS).join(', ')}`);
  makeClientImage();
  const internet = await Internet.start({
    number: NUMBER,
    zone: (address) => ({ 'api.test': { addresses: [address(10)] } }),
  });
  const service = await GatedService.start(internet, ['--sandbox-bandwidth-mbits', '0']);
  try {
    // Before any sandbox needs the gateway.
    const names = Object.keys(PARTS).toSorted((a, b) => Number(b === 'plain') - Number(a === 'plain'));
    for (const name of names) {
      if (options.only.length > 0 && !options.only.includes(name)) continue;
      await PARTS[name]!(service, internet, options);
      console.log(`(${name}: the load is ${loadavg()[0]!.toFixed(1)})\n`);
    }
  } finally {
    await service.close();
    await internet.close();
  }
}

async function kills(service: GatedService, _: Internet, { kills: count }: GatewayOptions): Promise<void> {
  const id = await service.create('kills', { policy: POLICY });
  const times = new Map<string, number[]>();
  let failures = 0;
  for (let index = 0; index < count; index += 1) {
    await sleep(STEADY_MS);
    for (const { client, millis, isAnswered } of await killGateway(service, id)) {
      times.set(client, [...(times.get(client) ?? []), millis]);
      if (!isAnswered) failures += 1;
    }
  }
  const rows = [...times].map(([client, all]) => [client, round(median(all)), round(Math.max(...all))]);
  console.log(table(['FIRST ANSWER AFTER A KILL', 'MEDIAN ms', `WORST OF ${count} ms`], rows));
  console.log(`${failures} attempts failed`);
  await remove(service, id);
}

async function memory(service: GatedService, internet: Internet, { mib }: GatewayOptions): Promise<void> {
  const rows: string[][] = [];
  for (const enabled of [false, true]) {
    const tls = { enabled, upstream_ca_cert: [internet.authority.root] };
    const id = await service.create('memory', { policy: POLICY, tls });
    const all = await transfer(service, id, { mib, option: enabled ? '' : '-k' });
    for (const { direction, mibPerSecond, growthMib, mostMib } of all) {
      const way = `${enabled ? 'decrypted' : 'spliced'} ${direction}`;
      rows.push([way, round(mibPerSecond), growthMib.toFixed(1), round(mostMib)]);
    }
    await remove(service, id);
  }
  console.log(table([`${mib} MiB`, 'MiB/s', 'GROWTH OF MEMORY MiB', 'MOST MiB'], rows));
}

async function neighbours(service: GatedService): Promise<void> {
  const victim = await service.create('victim', { policy: POLICY });
  const attacker = await service.newOrg('attacker');
  await usualTimes(service, victim, REQUESTS);
  const alone = await usualTimes(service, victim, REQUESTS);
  const end = await attack(service, attacker);
  let beside: Times;
  try {
    beside = await usualTimes(service, victim, REQUESTS);
  } finally {
    await end();
  }
  const rows = [
    ['alone', ...timesOf(alone)],
    ['beside 10,000 connections', ...timesOf(beside)],
    ['ratio', ...(['p50', 'p99', 'worst'] as const).map((key) => (beside[key] / alone[key]).toFixed(2))],
  ];
  console.log(table(['REQUESTS WITH A CONNECTION EACH', 'p50 ms', 'p99 ms', 'WORST ms'], rows));
  await remove(service, victim);
}

/** A restart ends the gateway: no sandbox of the next process needs it. */
async function plain(service: GatedService, _: Internet, { rounds }: GatewayOptions): Promise<void> {
  const id = await service.create('plain', {});
  const [without, beside]: [Times[], Times[]] = [[], []];
  for (let index = 0; index < rounds; index += 1) {
    without.push(await usualTimes(service, id, REQUESTS));
    const gated = await service.create('gated', { policy: POLICY });
    beside.push(await usualTimes(service, id, REQUESTS));
    await remove(service, gated);
    await service.restart('SIGTERM');
  }
  const medians = [without, beside].map((all) =>
    (['p50', 'p99'] as const).map((key) => median(all.map((each) => each[key]))),
  );
  const [first, second] = medians as [number[], number[]];
  const rows = [
    ['without a gateway', ...first.map((value) => value.toFixed(2))],
    ['with a gateway', ...second.map((value) => value.toFixed(2))],
    ['ratio', ...second.map((value, index) => (value / first[index]!).toFixed(2))],
  ];
  console.log(table(['A SANDBOX WITHOUT RULES BY DOMAIN', 'p50 ms', 'p99 ms'], rows));
  await remove(service, id);
}

async function starts(service: GatedService, _: Internet, { starts: count }: GatewayOptions): Promise<void> {
  const networks: Record<string, object> = {
    'no gateway': {},
    'a rule by domain': { policy: POLICY },
    'a rule by domain, and trust stores': { policy: POLICY, tls: { enabled: true } },
  };
  const times = new Map<string, number[]>();
  for (let index = 0; index <= count; index += 1) {
    for (const [name, network] of Object.entries(networks)) {
      const began = performance.now();
      const id = await service.create('start', network);
      // The first one has what the others find.
      if (index > 0) times.set(name, [...(times.get(name) ?? []), performance.now() - began]);
      await remove(service, id);
    }
  }
  const rows = [...times].map(([name, all]) => [name, round(median(all)), round(Math.max(...all))]);
  console.log(table(['CREATE UNTIL IT RUNS', `MEDIAN OF ${count} ms`, 'WORST ms'], rows));
}

async function remove(service: GatedService, id: string): Promise<void> {
  await service.client.delete(`/v1/sandboxes/${id}`);
}

function timesOf({ p50, p99, worst }: Times): string[] {
  return [p50, p99, worst].map((value) => value.toFixed(1));
}

function round(value: number): string {
  return value.toFixed(0);
}
