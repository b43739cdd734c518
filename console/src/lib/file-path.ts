/** The header in which the routes of files take a path: base64url of its UTF-8. */
export function pathHeader(path: string): Record<string, string> {
  const binary = String.fromCodePoint(...new TextEncoder().encode(path));
  return {
    'x-msb-file-path': btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', ''),
  };
}

export const nameOf = (path: string) => path.slice(path.lastIndexOf('/') + 1);

export const childOf = (folder: string, name: string) => `${folder === '/' ? '' : folder}/${name}`;

export function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf('/')) || '/';
}
