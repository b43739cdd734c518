/** Callers see these words, and never a text of a registry or of the engine. */
const FAILURES = {
  not_found: 'the registry has no such image',
  denied: 'the registry has no such repository, or requires credentials',
  no_login: 'the registry asked for no login, so the credentials were not tested: name an image',
  unreachable: 'the registry cannot be reached from this machine',
  untrusted: 'the registry has no valid certificate for https',
  refused:
    'the registry, or an address that it names, is not public: the operator can allow it with --registry-allow or --registry-http',
  platform: 'it does not exist for the platform of this machine',
  too_large: 'it is larger than the operator allows with --image-max-mib',
  too_many_parts: 'it has more layers, files or volumes than this service takes',
  too_many_images:
    'with it, the sandboxes and snapshots of the organization would hold more bytes of images than --org-images-max-mib allows: delete sandboxes and snapshots that are no longer needed, stopped sandboxes too',
  rate_limited: 'the registry allows no more pulls for now',
  broken: 'the registry gives no valid answer',
  mismatch: 'the content does not have the digest that its manifest names',
  unsupported:
    'its format is not supported: push it again as an OCI or Docker image with gzip or plain layers, not zstd',
  too_slow: 'the registry sends too slowly',
  no_space: 'the disk of this machine is full up to its reserve: ask the operator to make room',
  busy: 'the organization has too many pulls at once: try again later',
  entrypoint: 'its configuration has no valid entrypoint',
  engine: 'the engine does not accept it; the log of the service has the reason',
} as const;
export type PullFailure = keyof typeof FAILURES;

/** `detail`: for the log of the operator. */
export class PullError extends Error {
  constructor(
    readonly failure: PullFailure,
    detail: string,
    options?: ErrorOptions,
  ) {
    super(detail, options);
  }

  get words(): string {
    return FAILURES[this.failure];
  }
}
