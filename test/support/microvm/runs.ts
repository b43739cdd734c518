import { Buffer } from 'node:buffer';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { BootConfiguration, BootNetwork } from '../../../src/engines/microvm/boot/configuration.js';
import { runConfiguration } from '../../../src/engines/microvm/boot/run-configuration.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { runSpecOf } from '../run-spec.js';
import { moduleFiles, startMachine, type Machine, type MachineOptions } from './machine.js';

export const IMAGE = {
  env: ['PATH=/bin', 'FROM=image', 'SHARED=image'],
  entrypoint: [],
  user: '',
  workdir: '',
  stopSignal: null as string | null,
};

export const script = (text: string) => ({ cmd: ['sh', '-c', text] });

/** A folder that the end of the test removes. */
export function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-microvm-run-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** A machine with a specification, which the end of the test kills. */
export async function startRun(
  spec: Partial<RunSpec>,
  options: MachineOptions & { network?: BootNetwork } & Partial<
      Pick<BootConfiguration, 'trust' | 'files'>
    > = {},
  image = IMAGE,
): Promise<Machine> {
  const run = {
    orgId: 'o',
    sandboxId: '0190',
    runId: 'r',
    name: 'n',
    spec: runSpecOf('busybox', spec),
    secrets: { registry: null, values: {}, env: { TOKEN: 'secret' } },
  };
  const hosts = { path: '/etc/hosts', mode: 0o644, content: Buffer.from('127.0.0.1\tlocalhost\n') };
  const { network = null, trust = null, files: more = [] } = options;
  const modules = await moduleFiles();
  const configuration = runConfiguration(run, { image, modules, network, files: [hosts, ...more], trust });
  const machine = await startMachine({ ...options, configuration });
  onTestFinished(() => machine.kill());
  return machine;
}
