import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import type { Surroundings } from '../../../src/engine/definition.js';
import { connectMicrovm } from '../../../src/engines/microvm/connect.js';
import { ImageStore } from '../../../src/engines/microvm/images/image-store.js';
import { IMAGES_DIRECTORY } from '../../../src/engines/microvm/images/images-directory.js';
import { importImage } from '../../../src/engines/microvm/images/import-image.js';
import { DISK_WRITES, OVERHEAD_MIB } from '../../../src/engines/microvm/options.js';
import type { MicrovmRuntime } from '../../../src/engines/microvm/runtime.js';
import { VolumeStore } from '../../../src/volumes/storage/store.js';
import type { Client } from '../client.js';
import { sh } from '../guest.js';
import { until } from '../polling.js';
import type { TestOptions, TestService } from '../service.js';
import { isEmulated, kernel } from './needs.js';

/** The name of an image that holds busybox with every applet, and an entrypoint of its own user. */
export const IMAGE = 'sandkeep-test:busybox';
const BUSYBOX = '/bin/busybox';
const MOST = { bytes: 1024 ** 3, beyond: 'too_large' } as const;

/** A data directory with the image. `programs`: paths of programs of this machine that the image has too. */
export async function makeMicrovmDirectory(programs: readonly string[] = []): Promise<string> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sandkeep-microvm-data-'));
  await importTestImage(dataDir, programs);
  return dataDir;
}

export async function importTestImage(dataDir: string, programs: readonly string[] = []): Promise<void> {
  const archive = join(dataDir, 'image.tar');
  makeArchive(archive, programs);
  await importImage(new ImageStore(join(dataDir, IMAGES_DIRECTORY)), {
    file: archive,
    name: IMAGE,
    architecture: 'amd64',
    limit: MOST,
    signal: new AbortController().signal,
  });
}

/** Options that put a test service on virtual machines. */
export function onMicrovm(
  dataDir: string,
  surroundings: Partial<Surroundings> = {},
  options: Partial<Parameters<typeof connectMicrovm>[0]> = {},
): Pick<TestOptions, 'runtime'> {
  return {
    runtime: async (instanceId, volumes) =>
      connectForTest(dataDir, { instanceId, volumes, ...surroundings }, options),
  };
}

/** The options of the engine, with the kernel of tests. */
export const ENGINE_OPTIONS = {
  microvmKernel: kernel,
  microvmOverheadMib: OVERHEAD_MIB,
  microvmDiskWritesMib: DISK_WRITES.default,
  microvmAddresses: undefined,
  microvmResolvers: undefined,
  microvmAllow: [],
  microvmEmulation: isEmulated,
};

async function connectForTest(
  dataDir: string,
  surroundings: Partial<Surroundings>,
  options: Partial<Parameters<typeof connectMicrovm>[0]>,
): Promise<MicrovmRuntime> {
  return connectMicrovm(
    { ...ENGINE_OPTIONS, ...options },
    {
      instanceId: 'test',
      dataDir,
      volumes: new VolumeStore(join(dataDir, 'volumes')),
      defaultDiskMib: 256,
      ...surroundings,
    },
  );
}

/** The output of a script in a sandbox. */
export async function shIn(
  { runtime }: Pick<TestService, 'runtime'>,
  sandboxId: string,
  script: string,
): Promise<string> {
  const { guest, release } = await runtime.openGuest(sandboxId);
  try {
    return await sh(guest, script);
  } finally {
    release();
  }
}

/** Destroys the sandboxes of these organizations, and waits until the engine holds none. */
export async function destroyAll(service: TestService, ...clients: Client[]): Promise<void> {
  for (const client of clients)
    for (const { id } of (await client.get('/v1/sandboxes', { limit: 100 })).body.data)
      await client.delete(`/v1/sandboxes/${id}`);
  await until(
    () => service.runtime.list(),
    (held) => held.length === 0,
  );
}

/** An archive as `docker save` makes it. */
function makeArchive(file: string, programs: readonly string[]): void {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-archive-'));
  try {
    const root = join(folder, 'root');
    for (const name of ['bin', 'etc', 'srv', 'tmp']) mkdirSync(join(root, name), { recursive: true });
    cpSync(BUSYBOX, join(root, 'bin/busybox'));
    const applets = execFileSync(BUSYBOX, ['--list'], { encoding: 'utf8' }).trim().split('\n');
    for (const applet of applets) if (applet !== 'busybox') symlinkSync('busybox', join(root, 'bin', applet));
    for (const program of programs) copyProgram(program, root);
    writeFileSync(
      join(root, 'etc/passwd'),
      'root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n',
    );
    writeFileSync(join(root, 'etc/group'), 'root:x:0:\nann:x:1000:\nteam:x:2000:ann\n');
    execFileSync('chmod', ['1777', join(root, 'tmp')]);
    execFileSync('tar', ['-C', root, '--owner=0', '--group=0', '-cf', join(folder, 'layer.tar'), '.']);
    const hash = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
    const config = Buffer.from(
      JSON.stringify({
        architecture: 'amd64',
        os: 'linux',
        config: { Env: ['PATH=/bin', 'FROM_IMAGE=yes'], WorkingDir: '/srv' },
        rootfs: { type: 'layers', diff_ids: [`sha256:${hash(readFileSync(join(folder, 'layer.tar')))}`] },
      }),
    );
    writeFileSync(join(folder, `${hash(config)}.json`), config);
    const manifest = [{ Config: `${hash(config)}.json`, RepoTags: [IMAGE], Layers: ['layer.tar'] }];
    writeFileSync(join(folder, 'manifest.json'), JSON.stringify(manifest));
    execFileSync('tar', ['-C', folder, '-cf', file, 'manifest.json', `${hash(config)}.json`, 'layer.tar']);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Copies a program with the libraries that it loads. */
function copyProgram(program: string, root: string): void {
  const loaded = execFileSync('ldd', [program], { encoding: 'utf8' }).matchAll(/\/\S+/g);
  for (const [path] of loaded) cpSync(path, join(root, path), { dereference: true });
  cpSync(program, join(root, 'bin', basename(program)), { dereference: true });
}
