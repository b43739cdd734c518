/** The error numbers of Linux that a guest can answer with. The service may run on another system, so `node:os` is no source. */
const ERRORS: Record<number, readonly [name: string, message: string]> = {
  1: ['EPERM', 'Operation not permitted'],
  2: ['ENOENT', 'No such file or directory'],
  5: ['EIO', 'Input/output error'],
  6: ['ENXIO', 'No such device or address'],
  7: ['E2BIG', 'Argument list too long'],
  8: ['ENOEXEC', 'Exec format error'],
  9: ['EBADF', 'Bad file descriptor'],
  11: ['EAGAIN', 'Resource temporarily unavailable'],
  12: ['ENOMEM', 'Cannot allocate memory'],
  13: ['EACCES', 'Permission denied'],
  16: ['EBUSY', 'Device or resource busy'],
  17: ['EEXIST', 'File exists'],
  18: ['EXDEV', 'Invalid cross-device link'],
  20: ['ENOTDIR', 'Not a directory'],
  21: ['EISDIR', 'Is a directory'],
  22: ['EINVAL', 'Invalid argument'],
  23: ['ENFILE', 'Too many open files in system'],
  24: ['EMFILE', 'Too many open files'],
  26: ['ETXTBSY', 'Text file busy'],
  27: ['EFBIG', 'File too large'],
  28: ['ENOSPC', 'No space left on device'],
  29: ['ESPIPE', 'Illegal seek'],
  30: ['EROFS', 'Read-only file system'],
  31: ['EMLINK', 'Too many links'],
  32: ['EPIPE', 'Broken pipe'],
  36: ['ENAMETOOLONG', 'File name too long'],
  38: ['ENOSYS', 'Function not implemented'],
  39: ['ENOTEMPTY', 'Directory not empty'],
  40: ['ELOOP', 'Too many levels of symbolic links'],
  95: ['EOPNOTSUPP', 'Operation not supported'],
  99: ['EADDRNOTAVAIL', 'Cannot assign requested address'],
  101: ['ENETUNREACH', 'Network is unreachable'],
  104: ['ECONNRESET', 'Connection reset by peer'],
  110: ['ETIMEDOUT', 'Connection timed out'],
  111: ['ECONNREFUSED', 'Connection refused'],
  113: ['EHOSTUNREACH', 'No route to host'],
  116: ['ESTALE', 'Stale file handle'],
  122: ['EDQUOT', 'Disk quota exceeded'],
  125: ['ECANCELED', 'Operation canceled'],
};

export function errnoName(errno: number): string | null {
  return ERRORS[errno]?.[0] ?? null;
}

/** As the C library words it. */
export function errnoMessage(errno: number): string {
  return ERRORS[errno]?.[1] ?? `error ${errno}`;
}
