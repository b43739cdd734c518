/** What engines put before the reason, from the outermost of their parts to the innermost. */
const PREFIXES =
  /^(?:failed to create (?:shim )?task(?: for container)?: |failed to create shim: |OCI runtime (?:create|start) failed: |\w+ (?:create|start) failed: |container_linux\.go:\d+: |process_linux\.go:\d+: |starting container process caused: |unable to start container process: |error during container init: )+/;

/**
 * Why an engine did not start a container, for the user: without the names of the engine's own parts, and with the paths
 * of the guest in place of those of this machine.
 */
export function plainWords(said: string): string {
  return said
    .replace(PREFIXES, '')
    .replace(/(?:\/[\w.-]+)+\/(?:overlay2|subvolumes|graph)\/[0-9a-f]+(?:-init)?(?:\/merged)?/g, '')
    .replace(/\/run\/sandkeep\/[0-9a-f-]+\/[0-9a-f-]+\/\d+/g, 'the volume')
    .replace(
      /\/run\/sandkeep\/[0-9a-f-]+\/[0-9a-f-]+\/(?:hostname|hosts|resolv\.conf)/g,
      "the service's file",
    )
    .replace(/: unknown(?=:|$)/, '');
}
