import { rmSync, writeFileSync } from 'node:fs';
import { until } from '../polling.js';
import type { GatedService } from './gated-service.js';

/** Each asks for a name by the resolver as it is in most images: a query that gets no answer waits for seconds. */
const CLIENTS: Record<string, string> = {
  'getent (glibc)': 'getent ahostsv4 api.test',
  'connection (glibc)': '/opt/clients/resolve-glibc api.test 80',
  'connection (musl)': '/opt/clients/resolve-musl api.test 80',
  curl: 'curl -sS http://api.test/',
};

export interface FirstAnswer {
  client: string;
  /** From the kill to the end of the program, which was started with it. */
  millis: number;
  /** It never tries again, so the first attempt has succeeded. */
  isAnswered: boolean;
  output: string;
}

/**
 * Kills the gateway, and lets each client in the sandbox make one attempt at that moment.
 */
export async function killGateway(service: GatedService, id: string): Promise<FirstAnswer[]> {
  const pid = service.gatewayPid()!;
  const root = `/proc/${await service.pidOf(id)}/root/tmp`;
  const all = Object.entries(CLIENTS).map(async ([client, command], index): Promise<FirstAnswer> => {
    const output = await service.sh(
      id,
      `touch /tmp/ready-${index}; until [ -e /tmp/go ]; do sleep 0.005; done
       out=$(${command}); code=$?; echo "$out" | head -1; echo "$code $(date +%s%3N)"`,
    );
    const [code, endedAt] = output.split('\n').at(-1)!.split(' ').map(Number);
    return { client, millis: endedAt! - killedAt, isAnswered: code === 0, output };
  });
  await until(
    async () => service.sh(id, 'ls /tmp'),
    (files) => Object.keys(CLIENTS).every((_, index) => files.includes(`ready-${index}`)),
  );
  process.kill(pid, 'SIGKILL');
  const killedAt = Date.now();
  writeFileSync(`${root}/go`, '');
  const answers = await Promise.all(all);
  rmSync(`${root}/go`);
  await service.sh(id, 'rm -f /tmp/ready-*');
  await until(
    async () => service.gatewayPid(),
    (now) => now !== undefined && now !== pid,
  );
  return answers;
}
