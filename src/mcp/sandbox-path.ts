import { Type } from 'typebox';
import type { Api } from './api.js';

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function isUuid(text: string): boolean {
  return UUID.test(text);
}

export const sandboxInput = {
  sandbox: Type.String({ minLength: 1, maxLength: 128, description: 'The name or the id of the sandbox.' }),
};

/** The path of a sandbox in the API. */
export function sandboxPath(nameOrId: string): string {
  const part = encodeURIComponent(nameOrId);
  return `/v1/sandboxes/${isUuid(nameOrId) ? part : `by-name/${part}`}`;
}

/** For the operations that take only ids. The key needs `sandboxes:read` to look up a name. */
export async function sandboxIdOf(api: Api, nameOrId: string): Promise<string> {
  if (isUuid(nameOrId)) return nameOrId;
  const { id } = await api.json<{ id: string }>({ method: 'GET', path: sandboxPath(nameOrId) });
  return id;
}
