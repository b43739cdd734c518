import Docker from 'dockerode';
import type { Remains, Removal } from '../../engine/definition.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { explainConnectionError } from './connection-error.js';
import { INSTANCE_LABEL } from './container.js';
import {
  ALREADY_REMOVED,
  CONFLICT,
  FORBIDDEN,
  ignoreStatus,
  NOT_FOUND,
  SERVER_ERROR,
  statusOf,
} from './errors.js';
import { INIT_LABEL } from './guest-init.js';
import { listPulled } from './images/engine-image.js';
import { isPauseContainer, isPauseName } from './network/pause-container.js';
import { listCommits } from './snapshots/left-commits.js';
import { listSnapshots } from './snapshots/snapshot-image.js';

interface EngineObject {
  id: string;
  name: string;
}

interface RemovableObjects {
  containers: (EngineObject & { state: string })[];
  networks: EngineObject[];
  volumes: EngineObject[];
  images: EngineObject[];
  /**
   * Pulled images bear no mark of an installation. They stay while the engine has containers of another installation.
   */
  pulledImages: EngineObject[];
  /** Snapshots, and interrupted captures without a name. */
  snapshotImages: EngineObject[];
}

interface InstallationObjects {
  removable: RemovableObjects;
  inUse: EngineObject[];
}

const ANSWER_TIMEOUT_MS = 60_000;
const REMOVALS = 6;
/** The engine removes more at once no faster. */
const AT_ONCE = 4;

/** Throws ExplainedError when the engine does not answer. */
export async function findRemains(socketPath: string, instanceId: string): Promise<Remains> {
  const docker = new Docker({ socketPath, timeout: ANSWER_TIMEOUT_MS });
  const explain = (cause: unknown): never => {
    const { reason, remedy } = explainConnectionError(cause, socketPath);
    throw new ExplainedError(`${reason}, so it cannot be asked what it has of the installation. ${remedy}`, {
      cause,
    });
  };
  const { removable, inUse } = await findObjects(docker, instanceId).catch(explain);
  const { containers, networks, volumes, images, pulledImages, snapshotImages } = removable;
  return {
    inUse,
    lines: [
      ...containers.map(({ name, state }) => `container  ${name} (${state})`),
      ...networks.map(({ name }) => `network    ${name}`),
      ...volumes.map(({ name }) => `volume     ${name} (the program that is process 1)`),
      ...images.map(({ name }) => `image      ${name}`),
      ...pulledImages.map(({ name }) => `image      ${name} (pulled)`),
      ...snapshotImages.map(({ name }) => `image      ${name} (a snapshot of a sandbox)`),
    ],
    async remove() {
      const removal = await removeObjects(docker, removable);
      return { ...removal, left: await findOwn(docker, instanceId).catch(explain) };
    },
  };
}

/** The names of the objects that bear the mark of the installation. */
async function findOwn(docker: Docker, instanceId: string): Promise<string[]> {
  const filters = { label: [`${INSTANCE_LABEL}=${instanceId}`] };
  const [containers, networks, images] = await Promise.all([
    docker.listContainers({ all: true, filters }),
    docker.listNetworks({ filters }),
    findCaptures(docker, instanceId),
  ]);
  return [...containers.map(nameOf), ...networks.map(({ Name }) => Name), ...images.map(({ name }) => name)];
}

/** Snapshots, and commits of interrupted captures. An operator's commit has the same labels, and stays. */
async function findCaptures(docker: Docker, instanceId: string): Promise<EngineObject[]> {
  const [snapshots, commits] = await Promise.all([
    listSnapshots(docker, instanceId),
    listCommits(docker, instanceId),
  ]);
  return [
    ...snapshots.flatMap(({ imageId, names }) => named(imageId, names)),
    ...commits.flatMap(({ id, names }) => named(id, names.length > 0 ? names : [id])),
  ];
}

function nameOf({ Id, Names }: Docker.ContainerInfo): string {
  return (Names[0] ?? Id).replace(/^\//, '');
}

async function findObjects(docker: Docker, instanceId: string): Promise<InstallationObjects> {
  const [all, networks, { Volumes }, images, pulled] = await Promise.all([
    docker.listContainers({ all: true }),
    docker.listNetworks({ filters: { label: [`${INSTANCE_LABEL}=${instanceId}`] } }),
    docker.listVolumes({ filters: { label: [INIT_LABEL] } }),
    docker.listImages({ filters: { label: [INIT_LABEL] } }),
    listPulled(docker),
  ]);
  const isOurs = ({ Labels }: Docker.ContainerInfo) => Labels[INSTANCE_LABEL] === instanceId;
  // An image built on the shared image inherits its label, and so do its containers.
  const isFiller = ({ Labels, Names }: Docker.ContainerInfo) =>
    INIT_LABEL in Labels && Volumes.some(({ Name }) => Names.includes(`/${Name}`));
  const ours = all.filter(isOurs);
  const fillers = all.filter((container) => isFiller(container) && !isOurs(container));
  const others = all.filter((container) => !isOurs(container) && !isFiller(container));
  const mountedByOthers = new Set(others.flatMap(({ Mounts }) => Mounts.map(({ Name }) => Name)));
  // A running filler fills the volume for an installation that is about to use it.
  for (const { Names, State } of fillers) {
    if (State !== 'exited') mountedByOthers.add((Names[0] ?? '').slice(1));
  }
  const [usedVolumes, volumes] = partition(
    Volumes.map(({ Name }) => ({ id: Name, name: Name })),
    ({ name }) => mountedByOthers.has(name),
  );
  const isKept = (container: Docker.ContainerInfo) =>
    usedVolumes.some(({ name }) => container.Names.includes(`/${name}`));
  const stays = new Set([...others, ...fillers.filter(isKept)].map(({ ImageID }) => ImageID));
  const ownImages = images
    .filter(({ RepoTags }) => (RepoTags ?? []).every((tag) => tag.startsWith(OWN_IMAGES)))
    // A pulled image may have the label of its author's choice.
    .filter(({ Id }) => pulled.every(({ id }) => id !== Id))
    .flatMap(({ Id, RepoTags }) => named(Id, RepoTags ?? [Id]));
  const pulledImages = pulled.flatMap(({ id, names }) => named(id, names));
  const isShared = others.some(({ Labels }) => INSTANCE_LABEL in Labels);
  const [usedImages, unusedImages] = partition(ownImages, ({ id }) => stays.has(id));
  const [usedPulled, unusedPulled] = partition(pulledImages, ({ id }) => isShared || stays.has(id));
  return {
    removable: {
      // Sandboxes before the pause containers whose network they join.
      containers: [
        ...ours.toSorted((a, b) => Number(isPauseContainer(a)) - Number(isPauseContainer(b))),
        ...fillers.filter((container) => !isKept(container)),
      ].map((container) => ({ id: container.Id, name: nameOf(container), state: container.State })),
      networks: networks.map(({ Id, Name }) => ({ id: Id, name: Name })),
      volumes,
      images: unusedImages,
      pulledImages: unusedPulled,
      snapshotImages: await findCaptures(docker, instanceId),
    },
    inUse: [...usedVolumes, ...usedImages, ...usedPulled],
  };
}

/** An image once for each of its names: the operator may have given another name to the same image. */
function named(id: string, names: readonly string[]): EngineObject[] {
  return names.map((name) => ({ id, name }));
}

const OWN_IMAGES = 'sandkeep/';

async function removeObjects(docker: Docker, removable: RemovableObjects): Promise<Omit<Removal, 'left'>> {
  const { containers, networks, volumes, images, pulledImages, snapshotImages } = removable;
  // The containers of networks come last. Those of a thousand sandboxes, one after another, take many minutes.
  for (const isPause of [false, true]) {
    const left = containers.filter(({ name }) => isPauseName(name) === isPause);
    const workers = Array.from({ length: AT_ONCE }, async () => {
      for (let next = left.shift(); next; next = left.shift()) await removeContainer(docker, next.id);
    });
    await Promise.all(workers);
  }
  const inUse: EngineObject[] = [];
  const removeShared = async (
    objects: readonly EngineObject[],
    remove: (name: string) => Promise<unknown>,
  ) => {
    const refused = await refusedOf(objects, remove);
    inUse.push(...refused);
    return objects.filter((object) => !refused.includes(object));
  };
  const removeImage = async (name: string) => docker.getImage(name).remove();
  const removed = {
    volumes: await removeShared(volumes, async (name) => docker.getVolume(name).remove()),
    images: await removeShared(images, removeImage),
    pulledImages: await removeShared(pulledImages, removeImage),
    snapshotImages: await removeShared(snapshotImages, removeImage),
  };
  // Last, because the engine may refuse.
  for (const network of networks) await removeNetwork(docker, network);
  return {
    removed: { containers, networks, ...removed },
    inUse,
  };
}

/** Removes the objects. The engine refuses to remove one that a container uses. */
async function refusedOf(
  objects: readonly EngineObject[],
  remove: (name: string) => Promise<unknown>,
): Promise<EngineObject[]> {
  const refused: EngineObject[] = [];
  for (const object of objects) {
    await remove(object.name).catch((error: unknown) => {
      if (statusOf(error) === CONFLICT) refused.push(object);
      else ignoreStatus(NOT_FOUND)(error);
    });
  }
  return refused;
}

/** After many starts at once, Docker 20.10 counts connections of containers that are gone, until it starts again. */
async function removeNetwork(docker: Docker, { id, name }: EngineObject): Promise<void> {
  await docker
    .getNetwork(id)
    .remove()
    .catch((cause: unknown) => {
      if (statusOf(cause) !== FORBIDDEN) return ignoreStatus(NOT_FOUND)(cause);
      throw new ExplainedError(
        `the Docker engine keeps the network ${name}, and counts containers on it. Remove those that "docker network inspect ${name}" names, or restart the engine if it names none. Then repeat the command`,
        { cause },
      );
    });
}

/** The engine waits ten seconds for the end of the processes. On a busy machine, hundreds of them take longer. */
async function removeContainer(docker: Docker, id: string): Promise<void> {
  for (let left = REMOVALS; ; left -= 1) {
    try {
      await docker.getContainer(id).remove({ force: true, v: true });
      return;
    } catch (error) {
      if (ALREADY_REMOVED.some((status) => status === statusOf(error))) return;
      if (left === 1 || statusOf(error) !== SERVER_ERROR) throw error;
    }
  }
}

function partition<T>(items: readonly T[], isFirst: (item: T) => boolean): [T[], T[]] {
  return [items.filter(isFirst), items.filter((item) => !isFirst(item))];
}
