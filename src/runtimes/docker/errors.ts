import { RLIMIT_NAMES } from '../../sandboxes/spec/schema.js';

/** Undefined without an answer. */
export function statusOf(error: unknown): number | undefined {
  return (error as { statusCode?: number }).statusCode;
}

export function engineMessage(error: unknown): string {
  const { json, message } = error as { json?: { message?: string }; message?: string };
  return json?.message ?? message ?? String(error);
}

/** For a catch. */
export function ignoreStatus(...statuses: number[]): (error: unknown) => undefined {
  return (error) => {
    if (!statuses.includes(statusOf(error) ?? 0)) throw error;
    return undefined;
  };
}

const PREFIXES =
  /^(?:failed to create (?:shim )?task(?: for container)?: |failed to create shim: |OCI runtime (?:create|start) failed: |\w+ (?:create|start) failed: |container_linux\.go:\d+: |process_linux\.go:\d+: |starting container process caused: |unable to start container process: |error during container init: )+/;

/** Removes names of engine components and paths of the machine. */
export function explainStartFailure(said: string): string {
  return said
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
      (said, number: string) => {
        const name = RLIMIT_NAMES[Number(number)];
        return name === undefined
          ? said
          : `the engine may not raise the limit ${name} that far: request less in rlimits`;
      },
    );
}
