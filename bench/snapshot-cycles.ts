import Docker from 'dockerode';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../src/engines/docker/container.js';
import { runCycles, startSandbox, untilEqual } from './cycles.js';
import { serveOnDocker } from './docker-service.js';
import { Client } from './neighbours/client.js';

export interface CyclesOptions {
  cycles: number;
  /** No further cycle begins after so many minutes. */
  minutes: number;
  image: string;
  dockerSocket: string;
}

const AT_ONCE = 4;
const MIB = 1024 * 1024;

/**
 * Creates a sandbox, makes a snapshot, starts another sandbox from it, forks that one, and deletes everything, many
 * times. The engine must have the same of the installation afterwards as before. Others may use the engine meanwhile.
 */
export async function snapshotCycles(options: CyclesOptions): Promise<void> {
  const { cycles, minutes, image, dockerSocket } = options;
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const wide = ['--rate-limit', '1000000', '--volume-purge-hours', '0'];
  const server = await serveOnDocker(dockerSocket, directory, wide);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  const docker = new Docker({ socketPath: dockerSocket });
  const fields = { runtime: { cmd: ['sleep', '1000000'] }, resources: { vcpus: 1, memory_mib: 32 } };
  const source = { image: { type: 'oci', reference: image }, ...fields };
  try {
    // The first start makes the volume of process 1, and pulls the image.
    const first = await startSandbox(client, { name: 'first', ...source });
    const label = [`${SANDBOX_LABEL}=${first}`];
    const [container] = await docker.listContainers({ filters: { label } });
    const installation = container!.Labels[INSTANCE_LABEL]!;
    await client.json('DELETE', `/v1/sandboxes/${first}`);
    const measure = async () => diskOf(docker, installation);
    const before = await untilEqual(measure, isEqual);
    await runCycles(client, source, { cycles, minutes, atOnce: AT_ONCE });
    const after = await untilEqual(measure, isEqual, before);
    const shown = (name: string, { own, all }: Disk) => [
      name,
      ...[own.images, own.containers, all.images, all.containers].map(String),
      (all.bytes / MIB).toFixed(3),
    ];
    console.log(
      table(
        [
          'docker system df',
          'OWN IMAGES',
          'OWN CONTAINERS',
          'ALL IMAGES',
          'ALL CONTAINERS',
          'ALL LAYERS MiB',
        ],
        [shown('before', before), shown('after', after)],
      ),
    );
    if (!isEqual(before, after)) process.exitCode = 1;
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

interface Disk {
  /** The installation has them. */
  own: { images: number; containers: number };
  all: { images: number; containers: number; bytes: number };
}

function isEqual({ own: a }: Disk, { own: b }: Disk): boolean {
  return a.images === b.images && a.containers === b.containers;
}

interface Labelled {
  Labels: Record<string, string> | null;
}

async function diskOf(docker: Docker, installation: string): Promise<Disk> {
  const { LayersSize, Images, Containers } = (await docker.df()) as {
    LayersSize: number;
    Images: Labelled[];
    Containers: Labelled[];
  };
  const own = (list: Labelled[]) =>
    list.filter(({ Labels }) => Labels?.[INSTANCE_LABEL] === installation).length;
  return {
    own: { images: own(Images), containers: own(Containers) },
    all: { images: Images.length, containers: Containers.length, bytes: LayersSize },
  };
}
