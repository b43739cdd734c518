import type Docker from 'dockerode';
import { StartRefusedError, type RunSpec } from './runtime.js';

const PULL_TIMEOUT_MS = 20 * 60_000;

export interface ImageCommand {
  /** Does the image itself say what to run? */
  hasCommand: boolean;
}

/** Brings the image onto the machine as the pull policy says. Throws StartRefusedError when it cannot be had. */
export async function ensureImage(
  docker: Docker,
  { image, pullPolicy }: RunSpec,
  signal: AbortSignal,
): Promise<ImageCommand> {
  const present = pullPolicy === 'always' ? undefined : await inspect(docker, image);
  if (present) return present;
  if (pullPolicy === 'never') {
    throw new StartRefusedError(`the image ${image} is not on this machine, and pull_policy is never`);
  }
  const deadline = AbortSignal.timeout(PULL_TIMEOUT_MS);
  try {
    await pull(docker, image, AbortSignal.any([signal, deadline]));
  } catch (error) {
    if (deadline.aborted) {
      const minutes = PULL_TIMEOUT_MS / 60_000;
      throw new StartRefusedError(`the image ${image} was not pulled within ${minutes} minutes`, {
        cause: error,
      });
    }
    if (signal.aborted || (error as NodeJS.ErrnoException).code === 'ECONNREFUSED') throw error;
    throw new StartRefusedError(`the image ${image} cannot be pulled: ${engineMessage(error)}`, {
      cause: error,
    });
  }
  const pulled = await inspect(docker, image);
  if (!pulled) throw new StartRefusedError(`the image ${image} is not on this machine after it was pulled`);
  return pulled;
}

async function inspect(docker: Docker, image: string): Promise<ImageCommand | undefined> {
  try {
    const { Config } = await docker.getImage(image).inspect();
    return { hasCommand: Boolean(Config?.Cmd?.length ?? 0) || Boolean(Config?.Entrypoint?.length ?? 0) };
  } catch (error) {
    if (statusOf(error) === 404) return undefined;
    throw error;
  }
}

async function pull(docker: Docker, image: string, signal: AbortSignal): Promise<void> {
  const stream = await docker.pull(hasTag(image) ? image : `${image}:latest`, { abortSignal: signal });
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(stream, (error) => (error ? reject(error) : resolve()));
  });
}

/** Without a tag the engine would pull every tag there is. */
function hasTag(image: string): boolean {
  return image.includes('@') || /:[^/]+$/.test(image);
}

/** The HTTP status of an answer of the engine; undefined when there was no answer. */
export function statusOf(error: unknown): number | undefined {
  return (error as { statusCode?: number }).statusCode;
}

/** What the engine said, without the client library's words around it. */
export function engineMessage(error: unknown): string {
  const { json, message } = error as { json?: { message?: string }; message?: string };
  return json?.message ?? message ?? String(error);
}
