import type { TemplateResponse } from '../lib/api-types';

export const tagOf = ({ name, tag }: Pick<TemplateResponse, 'name' | 'tag'>) => `${name}:${tag}`;

export function isUnfinished({ status }: Pick<TemplateResponse, 'status'>): boolean {
  return status === 'queued' || status === 'building';
}

/** The message of a build that has failed, with its line of the Dockerfile. */
export function reasonOf({ error }: Pick<TemplateResponse, 'error'>): string {
  if (error === null) return '';
  return error.line === null ? error.message : `line ${error.line}: ${error.message}`;
}
