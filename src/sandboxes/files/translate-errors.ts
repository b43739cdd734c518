import { ApiError, type ErrorName } from '../../http/errors.js';
import { GuestFileError } from '../../guest/guest.js';

const NAMES: Record<string, ErrorName> = {
  ENOENT: 'sandbox_file_not_found',
  ENOTDIR: 'sandbox_file_exists',
  EISDIR: 'sandbox_file_exists',
  EEXIST: 'sandbox_file_exists',
  ENOTEMPTY: 'sandbox_directory_not_empty',
  EINVAL: 'invalid_sandbox_path',
  ELOOP: 'invalid_sandbox_path',
  ENAMETOOLONG: 'invalid_sandbox_path',
  ESTALE: 'invalid_sandbox_path',
  ENXIO: 'invalid_sandbox_path',
  EAGAIN: 'invalid_sandbox_path',
  ENOSPC: 'storage_full',
  EDQUOT: 'storage_full',
  EFBIG: 'storage_full',
};

export async function translateErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof GuestFileError)) throw error;
    const name = NAMES[error.errnoName] ?? 'sandbox_file_forbidden';
    throw new ApiError(name, undefined, { errno: error.errnoName }, { cause: error });
  }
}
