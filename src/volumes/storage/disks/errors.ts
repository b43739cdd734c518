export type VolumeDiskErrorKind =
  /** A later attempt may succeed. */
  | 'no_room'
  /** The files of the volume are larger than its cap. */
  | 'does_not_fit'
  /** This process or machine cannot mount the disk. */
  | 'unavailable';

/** Its message is fit for callers; `cause` is for the operator. */
export class VolumeDiskError extends Error {
  constructor(
    readonly kind: VolumeDiskErrorKind,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Names the fault of an operation on a disk. */
export function explainDiskFailure(cause: unknown): Error {
  if (cause instanceof VolumeDiskError) return cause;
  const { message, code } = cause as NodeJS.ErrnoException;
  if (/loop device/i.test(message)) {
    return new VolumeDiskError(
      'no_room',
      'the machine has no loop device left for a volume with a cap; stop a sandbox that mounts one',
      { cause },
    );
  }
  if (code === 'ENOSPC' || /no space left on device/i.test(message)) {
    return new VolumeDiskError('no_room', 'the disk of the machine is full; delete a sandbox or a volume', {
      cause,
    });
  }
  return new VolumeDiskError(
    'unavailable',
    'the disk of the volume cannot be mounted on this machine; "sandkeep doctor" and the log show the operator the reason',
    { cause },
  );
}
