/** Whether ADD of Docker would unpack a file with the path. */
export function isArchive(path: string): boolean {
  return /\.(?:tar|tgz|tbz2?|txz|gz|bz2|xz|zst)$/i.test(path);
}
