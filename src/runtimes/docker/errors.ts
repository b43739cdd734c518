import { RLIMIT_NAMES } from '../../sandboxes/spec/schema.js';

export const NOT_MODIFIED = 304;
export const NOT_FOUND = 404;
export const CONFLICT = 409;
export const UNAVAILABLE = 503;
/** The answers to the removal of an object that is gone, or that the engine is removing. */
export const ALREADY_REMOVED = [NOT_FOUND, CONFLICT];

export function statusOf(error: unknown): number | undefined {
  return (error as { statusCode?: number }).statusCode;
}

export function engineMessage(error: unknown): string {
  const { json, message } = error as { json?: { message?: string }; message?: string };
  return json?.message ?? message ?? String(error);
}

export function ignoreStatus(...statuses: number[]): (error: unknown) => undefined {
  return (error) => {
    if (!statuses.includes(statusOf(error) ?? 0)) throw error;
    return undefined;
  };
}

const PREFIXES =
  /^(?:failed to create (?:shim )?task(?: for container)?: |failed to create shim: |OCI runtime (?:create|start) failed: |\w+ (?:create|start) failed: |container_linux\.go:\d+: |process_linux\.go:\d+: |starting container process caused: |unable to start container process: |error during container init: )+/;

/** Removes names of engine components and paths of the machine. */
export function explainStartFailure(message: string): string {
  return message
    .replace(PREFIXES, '')
    .replace(/(?:\/[\w.-]+)+\/(?:overlay2|subvolumes|graph)\/[0-9a-f]+(?:-init)?(?:\/merged)?/g, '')
    .replace(/\/run\/sandkeep\/[0-9a-f-]+\/[0-9a-f-]+\/\d+/g, 'the volume')
    .replace(
      /\/run\/sandkeep\/[0-9a-f-]+\/[0-9a-f-]+\/(?:hostname|hosts|resolv\.conf)/g,
      "the service's file",
    )
    .replace(/: unknown(?=:|$)/, '')
    .replace(
      /^error setting rlimits? for ready process: error setting rlimit type (\d+): operation not permitted$/,
      (message, number: string) => {
        const name = RLIMIT_NAMES[Number(number)];
        return name === undefined
          ? message
          : `the engine may not raise the limit ${name} that far: request less in rlimits`;
      },
    );
}
