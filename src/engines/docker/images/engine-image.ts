import type Docker from 'dockerode';
import { familiarForm, type ImageReference } from '../../../spec/image-reference.js';
import { ignoreStatus, NOT_FOUND } from '../errors.js';

export interface EngineImage {
  id: string;
  /** As the registry names it; the id, where no registry does. */
  digest: string;
  bytes: number;
  entrypoint: string[];
  stopSignal: string | undefined;
  path: string | null;
  /** The names of its variables. */
  variables: string[];
  /** Empty: root. */
  user: string;
  /** Volumes are outside the disk of a container. */
  volumes: string[];
  /** The names of labels that a tenant may have chosen. */
  labels: string[];
}

const PULLED_IMAGES = 'sandkeep/pulled';
/** Snapshots of sandboxes. A tag is the id of a snapshot. */
export const SNAPSHOT_IMAGES = 'sandkeep/snapshot';
/** Captures that are not snapshots yet. */
export const CAPTURED_IMAGES = 'sandkeep/capture';
/** With the registry under which Podman keeps loaded images. */
const PULLED_NAME = new RegExp(`^(?:localhost/)?${PULLED_IMAGES}[:@]`);
/** No caller gets them by their names: they may be of another organization. */
const OWN_NAME = new RegExp(`^(?:localhost/)?(?:${PULLED_IMAGES}|${SNAPSHOT_IMAGES}|${CAPTURED_IMAGES})[:@]`);

/**
 * The images with names of their own are the operator's: the service gives no such name to the images that it pulls.
 */
export async function findOperatorImage(
  docker: Docker,
  reference: ImageReference,
): Promise<EngineImage | undefined> {
  const name = familiarForm(reference);
  if (OWN_NAME.test(name)) return undefined;
  const found = await inspect(docker, name);
  return found && { ...found, labels: [] };
}

export async function findPulledImage(docker: Docker, tag: string): Promise<EngineImage | undefined> {
  return inspect(docker, `${PULLED_IMAGES}:${tag}`);
}

export async function listPulled(docker: Docker): Promise<{ id: string; names: string[]; bytes: number }[]> {
  const images = await docker.listImages({ filters: { reference: [PULLED_IMAGES] } });
  return images.map(({ Id, RepoTags, Size }) => ({
    id: Id,
    bytes: Size,
    names: (RepoTags ?? []).filter((name) => PULLED_NAME.test(name)),
  }));
}

/** The names of an image in a list, which has a mark in place of none. */
export function namesOf(tags: readonly string[] | null | undefined): string[] {
  return (tags ?? []).filter((tag) => tag !== '<none>:<none>');
}

/** The service pulled it. The operator may have it too, under another name. */
export function isPulled({ RepoTags }: Pick<Docker.ImageInspectInfo, 'RepoTags'>): boolean {
  return (RepoTags ?? []).some((name) => PULLED_NAME.test(name));
}

export function pulledName(tag: string): string {
  return `${PULLED_IMAGES}:${tag}`;
}

async function inspect(docker: Docker, name: string): Promise<EngineImage | undefined> {
  const found = await inspectNamed(docker, name);
  return found && engineImageOf(found);
}

/** Undefined: no image has this name. */
export async function inspectNamed(
  docker: Docker,
  name: string,
): Promise<Docker.ImageInspectInfo | undefined> {
  const found = await docker.getImage(name).inspect().catch(ignoreStatus(NOT_FOUND));
  // The engine also finds images by a part of their id, such as `sha256:01ab`.
  if (!found || ![...(found.RepoTags ?? []), ...(found.RepoDigests ?? [])].some((own) => isName(own, name))) {
    return undefined;
  }
  return found;
}

export function engineImageOf({ Id, Size, Config, RepoDigests }: Docker.ImageInspectInfo): EngineImage {
  return {
    id: Id,
    bytes: Size,
    digest: RepoDigests?.[0]?.split('@')[1] ?? Id,
    entrypoint: [Config?.Entrypoint ?? []].flat(),
    stopSignal: (Config as { StopSignal?: string } | undefined)?.StopSignal,
    path: Config?.Env?.findLast((entry) => entry.startsWith('PATH='))?.slice('PATH='.length) ?? null,
    variables: (Config?.Env ?? []).map((entry) => entry.split('=')[0]!),
    user: Config?.User ?? '',
    volumes: Object.keys(Config?.Volumes ?? {}),
    labels: Object.keys(Config?.Labels ?? {}),
  };
}

/** Podman writes names in full. */
function isName(own: string, name: string): boolean {
  return [name, `docker.io/${name}`, `docker.io/library/${name}`, `localhost/${name}`].includes(own);
}
