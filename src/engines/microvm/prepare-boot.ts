import { openSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import { newId } from '../../lib/uuid.js';
import { bootFiles, type BootFiles } from './boot/boot-files.js';
import { writeBootConfiguration, type BootConfiguration } from './boot/configuration.js';
import { kernelOptions } from './boot/kernel-options.js';
import { runConfiguration } from './boot/run-configuration.js';
import { bootTrust } from './boot/trust.js';
import type { Identity } from './identity.js';
import { RESOLVER_FILES, resolverFileContent } from '../../machine-network/resolver-files.js';
import { authoritiesFor } from '../../machine-network/trust/authorities.js';
import { trustsMore } from '../../machine-network/trust/trust-files.js';
import type { GuestInterface } from './network/vm-networks.js';
import type { MicrovmParts } from './parts.js';

/** In memory: the configuration has the secrets of the sandbox. */
const MEMORY = '/dev/shm';

export interface Boot {
  /** An open descriptor of a file that has no name any more. */
  configuration: number;
  kernel: string;
  initramfs: string;
  commandLine: string;
}

/** `directory`: that of the engine. They are made when the programs or the kernel of this machine have changed. */
export async function engineBootFiles(directory: string, kernel: string | undefined): Promise<BootFiles> {
  return bootFiles({ directory: join(directory, 'boot'), kernel });
}

export async function prepareBoot(
  {
    boot,
    isEmulated,
    services,
    diskWritesMib,
  }: Pick<MicrovmParts, 'boot' | 'isEmulated' | 'services' | 'diskWritesMib'>,
  run: Run,
  {
    identity,
    isCopy,
    network,
    sharedFiles,
  }: {
    identity: Identity;
    isCopy: boolean;
    network: GuestInterface | undefined;
    sharedFiles: ReadonlySet<string>;
  },
): Promise<Boot> {
  const { kernel, initramfs, modules } = boot;
  const trusted = trustsMore(run.spec) ? bootTrust(await authoritiesFor(run.spec, services)) : undefined;
  const configuration = runConfiguration(run, {
    image: identity.image,
    modules,
    network: network ?? null,
    sharedFiles,
    isCopy,
    files: [...resolverFiles(run, network), ...(trusted?.files ?? [])],
    trust: trusted?.trust ?? null,
  });
  return {
    configuration: await openConfiguration(configuration).catch((error: unknown) => {
      if (error instanceof RangeError) throw new StartRefusedError(error.message, { cause: error });
      throw error;
    }),
    kernel,
    initramfs,
    commandLine: kernelOptions({ isEmulated, writes: { diskWritesMib, memoryMib: run.spec.memoryMib } }),
  };
}

/** For a machine that sends the files of its disks as an archive, and runs no program of them. */
export async function prepareArchiveBoot({
  boot: { kernel, initramfs },
  isEmulated,
}: Pick<MicrovmParts, 'boot' | 'isEmulated'>): Promise<Boot> {
  return {
    configuration: await openConfiguration(ARCHIVE),
    kernel,
    initramfs,
    commandLine: kernelOptions({ isEmulated }),
  };
}

const ARCHIVE: BootConfiguration = {
  isArchive: true,
  hostName: 'export',
  user: null,
  workdir: '/',
  environment: [],
  arguments: [],
  rlimits: [],
  modules: [],
  patches: [],
  files: [],
  mounts: [],
  network: null,
  restricted: true,
};

/** An open descriptor of a file that has no name any more. */
async function openConfiguration(configuration: BootConfiguration): Promise<number> {
  const file = join(MEMORY, `sandkeep-${newId()}`);
  try {
    await writeBootConfiguration(file, configuration);
    return openSync(file, 'r');
  } finally {
    await rm(file, { force: true });
  }
}

function resolverFiles(
  { sandboxId, spec }: Run,
  network: GuestInterface | undefined,
): BootConfiguration['files'] {
  const { address, resolvers = [] } = network ?? {};
  const config = {
    hostname: spec.hostname ?? sandboxId,
    addresses: address === undefined ? [] : [address],
    resolvers,
  };
  return RESOLVER_FILES.map((path) => ({
    path,
    mode: 0o644,
    content: Buffer.from(resolverFileContent(path, config)),
  }));
}
