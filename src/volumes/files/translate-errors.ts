import { ApiError, type ErrorName } from '../../http/errors.js';
import { VolumeDiskError, type VolumeDiskErrorKind } from '../storage/disks/errors.js';
import { VolumePathError, type VolumePathErrorKind } from '../storage/guest-path.js';

const OF_PATHS: Record<VolumePathErrorKind, ErrorName> = {
  invalid: 'invalid_volume_path',
  not_found: 'volume_file_not_found',
  not_a_directory: 'invalid_volume_path',
  symlink: 'volume_file_not_found',
  unsupported: 'not_supported',
};

const OF_DISKS: Record<VolumeDiskErrorKind, ErrorName> = {
  no_room: 'rate_limited',
  does_not_fit: 'storage_full',
  unavailable: 'not_supported',
};

/** Errors of the file system that a caller can resolve. */
const OF_THE_SYSTEM: Record<string, ErrorName> = {
  ENOENT: 'volume_file_not_found',
  ENOTDIR: 'volume_file_exists',
  EISDIR: 'volume_file_exists',
  EEXIST: 'volume_file_exists',
  ENOTEMPTY: 'volume_directory_not_empty',
  EINVAL: 'invalid_volume_path',
  ENAMETOOLONG: 'invalid_volume_path',
  ENOSPC: 'storage_full',
  EDQUOT: 'storage_full',
  EFBIG: 'storage_full',
  EACCES: 'volume_file_forbidden',
  EPERM: 'volume_file_forbidden',
  EROFS: 'volume_file_forbidden',
  EAGAIN: 'volume_file_forbidden',
};

export async function translateErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof VolumePathError) {
      throw new ApiError(OF_PATHS[error.kind], error.message, null, { cause: error });
    }
    if (error instanceof VolumeDiskError) {
      throw new ApiError(OF_DISKS[error.kind], error.message, null, { cause: error });
    }
    const name = OF_THE_SYSTEM[(error as NodeJS.ErrnoException).code ?? ''];
    // The system's message contains paths of this machine.
    throw name ? new ApiError(name, undefined, null, { cause: error }) : error;
  }
}
