import {
  ProtocolError,
  ProtocolErrorCode,
  type ListResourcesResult,
  type ReadResourceResult,
  type ResourceTemplateType,
} from '@modelcontextprotocol/server';
import type { Api } from './api.js';
import { Refusal } from './refusal.js';
import { FILE_BYTES, readSome, textOf } from './tools/files.js';
import { tailOf } from './tools/logs.js';
import { listPage } from './tools/sandboxes.js';

const LOG_LINES = 1_000;
const PAGE = 50;
const PLAIN = 'text/plain';
/** The code of the protocol for an unknown resource. */
const NOT_FOUND = -32_002;
const BASE = 'sandkeep://sandboxes/';

export const RESOURCE_TEMPLATES: ResourceTemplateType[] = [
  {
    uriTemplate: `${BASE}{sandbox}/logs`,
    name: 'logs',
    title: 'Log of a sandbox',
    description: `The last ${LOG_LINES} lines of the log of a sandbox, by its name or id.`,
    mimeType: PLAIN,
  },
  {
    uriTemplate: `${BASE}{sandbox}/files/{+path}`,
    name: 'files',
    title: 'File of a sandbox',
    description: `The first ${FILE_BYTES.max} bytes of a file of a running sandbox. The path begins at \`/\`.`,
  },
];

/** The logs of the sandboxes, the newest first. Files are read by the template: nobody lists them all. */
export async function listResources(api: Api, cursor: string | undefined): Promise<ListResourcesResult> {
  const page = await listPage(api, [
    ['limit', String(PAGE)],
    ...(cursor === undefined ? [] : [['cursor', cursor] as [string, string]]),
  ]);
  return {
    resources: page.data.map(({ id, name, status }) => ({
      uri: `${BASE}${id}/logs`,
      name: `${name}/logs`,
      title: `Log of ${name}`,
      description: `The log of the sandbox ${name}, which is ${status}.`,
      mimeType: PLAIN,
    })),
    ...(page.next_cursor === null ? {} : { nextCursor: page.next_cursor }),
  };
}

export async function readResource(api: Api, uri: string): Promise<ReadResourceResult> {
  const { sandbox, path } = parse(uri);
  if (path === undefined) {
    const { text } = await tailOf(api, sandbox, LOG_LINES);
    return { contents: [{ uri, mimeType: PLAIN, text }] };
  }
  const { bytes, isCut } = await readSome(api, sandbox, path, FILE_BYTES.max);
  const text = textOf(bytes, isCut);
  return {
    contents: [
      text === undefined
        ? { uri, mimeType: 'application/octet-stream', blob: bytes.toString('base64') }
        : { uri, mimeType: PLAIN, text },
    ],
  };
}

function parse(uri: string): { sandbox: string; path?: string } {
  const [, sandbox, rest = ''] = /^sandkeep:\/\/sandboxes\/([^/?#]+)\/([^?#]*)$/.exec(uri) ?? [];
  try {
    if (sandbox !== undefined && rest === 'logs') return { sandbox: decodeURIComponent(sandbox) };
    if (sandbox !== undefined && rest.startsWith('files/') && rest.length > 'files/'.length) {
      const path = decodeURIComponent(rest.slice('files/'.length));
      return { sandbox: decodeURIComponent(sandbox), path: `/${path.replace(/^\/+/, '')}` };
    }
  } catch {
    // An escape that is not valid.
  }
  const forms = RESOURCE_TEMPLATES.map(({ uriTemplate }) => uriTemplate).join(', ');
  throw new ProtocolError(NOT_FOUND, `there is no resource ${uri.slice(0, 200)}: the forms are ${forms}`);
}

/** The protocol has no results that are failures for resources. */
export function resourceError(error: unknown): unknown {
  if (!(error instanceof Refusal)) return error;
  const code = error.status === 404 ? NOT_FOUND : ProtocolErrorCode.InvalidRequest;
  return new ProtocolError(code, error.advice);
}
