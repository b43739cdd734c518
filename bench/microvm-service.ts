import { cpus, loadavg } from 'node:os';
import { join } from 'node:path';
import { heldSandboxes } from '../src/engines/microvm/holdings.js';
import { until } from '../test/support/polling.js';
import { kernel as testKernel } from '../test/support/microvm/needs.js';
import { importTestImage } from '../test/support/microvm/service.js';
import { startService, type Server } from './speed/processes.js';

export interface MicrovmOptions {
  emulation?: true;
  kernel?: string;
}

/** The first line of the output: nobody takes the figures of emulation for those of KVM. */
export function machineLine({ emulation }: MicrovmOptions, more: string): string {
  const cpu = cpus();
  const how = emulation ? 'SOFTWARE EMULATION, not KVM' : 'KVM';
  return (
    `${how}; ${cpu[0]?.model.trim()}, ${cpu.length} processors, load ${loadavg()[0]!.toFixed(1)}; ` +
    `Node ${process.versions.node}; ${more}\n`
  );
}

/** Starts the service on virtual machines, with the image of tests. Its stop ends the machines that are left too. */
export async function serveOnMicrovm(
  directory: string,
  { emulation, kernel }: MicrovmOptions,
  options: readonly string[] = [],
): Promise<Server> {
  await importTestImage(directory);
  const file = emulation ? (kernel ?? testKernel) : kernel;
  const server = await startService([
    '--runtime',
    'microvm',
    '--data-dir',
    directory,
    '--default-disk-mib',
    '256',
    ...(emulation ? ['--microvm-emulation'] : []),
    ...(file === undefined ? [] : ['--microvm-kernel', file]),
    ...options,
  ]);
  return {
    ...server,
    async stop() {
      await server.stop();
      const alive = async () =>
        (await heldSandboxes(join(directory, 'microvm'))).filter(({ isAlive }) => isAlive);
      // Machines outlive the service, and end with their supervisor.
      for (const { record } of await alive()) process.kill(record!.supervisor.pid, 'SIGKILL');
      await until(alive, (left) => left.length === 0);
    },
  };
}
