import type Docker from 'dockerode';
import { StartRefusedError, type RunSpec } from '../runtime.js';
import { engineMessage, NOT_FOUND, statusOf } from './errors.js';

const PULL_TIMEOUT_MS = 20 * 60_000;

export interface ImageConfig {
  entrypoint: string[];
  stopSignal: string | undefined;
  path: string | null;
  /** Volumes are outside the disk of a container. */
  volumes: string[];
}

/** For one pull. Never stored, logged or shown. */
export interface RegistryAuth {
  username: string;
  password: string;
}

export async function ensureImage(
  docker: Docker,
  { image, pullPolicy }: RunSpec,
  signal: AbortSignal,
  auth?: RegistryAuth,
): Promise<ImageConfig> {
  const present = pullPolicy === 'always' ? undefined : await inspect(docker, image);
  if (present) return present;
  if (pullPolicy === 'never') {
    throw new StartRefusedError(
      `the image ${image} is not on this machine, and pull_policy is never: pull it first, or use if_missing`,
    );
  }
  const deadline = AbortSignal.timeout(PULL_TIMEOUT_MS);
  try {
    await pull(docker, image, AbortSignal.any([signal, deadline]), auth);
  } catch (error) {
    if (deadline.aborted) {
      const minutes = PULL_TIMEOUT_MS / 60_000;
      throw new StartRefusedError(`the image ${image} was not pulled within ${minutes} minutes`, {
        cause: error,
      });
    }
    if (signal.aborted || (error as NodeJS.ErrnoException).code === 'ECONNREFUSED') throw error;
    throw new StartRefusedError(
      `the image ${image} cannot be pulled: ${explainPull(engineMessage(error), auth)}`,
    );
  }
  const pulled = await inspect(docker, image);
  if (!pulled) throw new StartRefusedError(`the image ${image} is not on this machine after it was pulled`);
  return pulled;
}

async function inspect(docker: Docker, image: string): Promise<ImageConfig | undefined> {
  try {
    const { Config } = await docker.getImage(image).inspect();
    return {
      entrypoint: [Config?.Entrypoint ?? []].flat(),
      stopSignal: (Config as { StopSignal?: string } | undefined)?.StopSignal,
      path: Config?.Env?.findLast((entry) => entry.startsWith('PATH='))?.slice('PATH='.length) ?? null,
      volumes: Object.keys(Config?.Volumes ?? {}),
    };
  } catch (error) {
    if (statusOf(error) === NOT_FOUND) return undefined;
    throw error;
  }
}

async function pull(docker: Docker, image: string, signal: AbortSignal, auth?: RegistryAuth): Promise<void> {
  const stream = await docker.pull(hasTag(image) ? image : `${image}:latest`, {
    abortSignal: signal,
    ...(auth === undefined ? {} : { authconfig: auth }),
  });
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(stream, (broken, lines: { error?: string }[] | null) => {
      // The client library ignores errors after the first byte.
      const failed = lines?.find(({ error }) => error !== undefined);
      const error = broken ?? (failed && new Error(failed.error));
      if (error) reject(error);
      else resolve();
    });
  });
}

const PULL_FAILURES: [said: RegExp, meaning: string][] = [
  [
    /no matching manifest|does not match the specified platform/i,
    'it does not exist for the platform of this machine',
  ],
  [
    /pull access denied|unauthorized|authentication required|denied:/i,
    'the registry has no such repository, or requires credentials',
  ],
  [/manifest unknown|not found/i, 'the registry has no such image'],
  [/toomanyrequests|rate limit/i, 'the registry allows no more pulls for now'],
  [
    /no such host|connection refused|timeout|timed out|no route to host|unreachable|server misbehaving|EOF/i,
    'the registry cannot be reached from this machine',
  ],
];

/** Removes signed addresses and passwords. */
function explainPull(said: string, auth?: RegistryAuth): string {
  const meaning = PULL_FAILURES.find(([words]) => words.test(said))?.[1];
  let text = said.replace(/(https?:\/\/)[^\s/@"]*@/g, '$1').replace(/(https?:\/\/[^\s?"]*)\?[^\s"]*/g, '$1');
  if (auth !== undefined && auth.password !== '') text = text.replaceAll(auth.password, '***');
  return meaning === undefined ? text : `${meaning} (${text})`;
}

/** Without a tag the engine pulls all tags. */
function hasTag(image: string): boolean {
  return image.includes('@') || /:[^/]+$/.test(image);
}
