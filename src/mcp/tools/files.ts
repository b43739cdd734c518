import type { CallToolResult } from '@modelcontextprotocol/server';
import { Buffer } from 'node:buffer';
import { posix } from 'node:path';
import { Type } from 'typebox';
import { Words } from '../../http/schema.js';
import { AnswerTooLong, type Api } from '../api.js';
import { sandboxInput, sandboxPath } from '../sandbox-path.js';
import { failure, jsonResult, READS, textResult, tool } from '../tool.js';

export const FILE_BYTES = { default: 64 * 1024, max: 512 * 1024 };
/** An image is shown whole or not at all. */
const IMAGE_BYTES = 1024 * 1024;
/** The base64 of as many bytes fits the body of a call. */
const MOST_CONTENT = 700 * 1024;
const MOST_ENTRIES = 1_000;

/** Image formats that models look at. */
const IMAGE_TYPES: Record<string, string> = {
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.jpeg': 'image/jpeg',
  '.gif': 'image/gif',
  '.webp': 'image/webp',
};

const pathInput = Type.String({
  minLength: 1,
  description: 'The path in the sandbox, such as `/tmp/report.csv`. A relative one begins at `/`.',
});

const readFile = tool({
  name: 'read_file',
  title: 'Read a file of a sandbox',
  description:
    'Returns the beginning of a text file, or an image (png, jpeg, gif, webp) for you to look at. Of other binary files it returns base64. For a part of a long file use run_command with `sed -n` or `tail`.',
  scopes: ['sandboxes:exec'],
  annotations: READS,
  input: {
    ...sandboxInput,
    path: pathInput,
    max_bytes: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: FILE_BYTES.max,
        default: FILE_BYTES.default,
        description: `The most bytes of the file in the result, at most ${FILE_BYTES.max}. Default: ${FILE_BYTES.default}.`,
      }),
    ),
  },
  async call({ sandbox, path, max_bytes: most = FILE_BYTES.default }, { api }) {
    const mimeType = IMAGE_TYPES[posix.extname(path).toLowerCase()];
    if (mimeType !== undefined) return readImage(api, sandbox, path, mimeType);
    const { bytes, isCut } = await readSome(api, sandbox, path, most);
    const text = textOf(bytes, isCut);
    const note = isCut ? `\n[the file goes on after ${bytes.length} bytes]` : '';
    if (text !== undefined) return textResult(text + note);
    return textResult(`[binary file, as base64]\n${bytes.toString('base64')}${note}`);
  },
});

async function readImage(api: Api, sandbox: string, path: string, mimeType: string): Promise<CallToolResult> {
  const { bytes, isCut } = await readSome(api, sandbox, path, IMAGE_BYTES);
  if (isCut) {
    return failure(
      `the image ${path} has more than ${IMAGE_BYTES} bytes\nMake a smaller one with run_command, and read that.`,
    );
  }
  return { content: [{ type: 'image', data: bytes.toString('base64'), mimeType }] };
}

/** The first `most` bytes of a file. */
export async function readSome(
  api: Api,
  sandbox: string,
  path: string,
  most: number,
): Promise<{ bytes: Buffer; isCut: boolean }> {
  const answer = await api.send({
    method: 'GET',
    path: `${sandboxPath(sandbox)}/files/content`,
    query: { path },
  });
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of answer as AsyncIterable<Buffer>) {
    parts.push(part);
    bytes += part.length;
    if (bytes > most) break;
  }
  const all = Buffer.concat(parts);
  return { bytes: all.subarray(0, most), isCut: all.length > most };
}

/** Undefined: the bytes are no UTF-8, or have characters that no text has. `isCut`: a last character may be cut. */
export function textOf(bytes: Buffer, isCut: boolean): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: isCut });
  } catch {
    return undefined;
  }
}

const writeFile = tool({
  name: 'write_file',
  title: 'Write a file of a sandbox',
  description:
    'Writes a file in a running sandbox. An existing file is replaced in one step, and missing directories are made.',
  scopes: ['sandboxes:exec'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true },
  input: {
    ...sandboxInput,
    path: pathInput,
    content: Type.String({ maxLength: MOST_CONTENT, description: 'The content.' }),
    encoding: Type.Optional(
      Words(['text', 'base64'], {
        description: 'The form of `content`. Default: `text`, which is written as UTF-8.',
      }),
    ),
  },
  async call({ sandbox, path, content, encoding }, { api }) {
    const body = Buffer.from(content, encoding === 'base64' ? 'base64' : 'utf8');
    if (encoding === 'base64' && body.toString('base64').replace(/=+$/, '') !== content.replace(/=+$/, ''))
      return failure('content is no base64\nEncode it again, or leave encoding out for text.');
    await api.json({
      method: 'PUT',
      path: `${sandboxPath(sandbox)}/files/content`,
      query: { path },
      body,
    });
    return jsonResult({ path, bytes: body.length });
  },
});

interface Entry {
  path: string;
  kind: string;
  size: number;
  modified_at: string | null;
}

const listFiles = tool({
  name: 'list_files',
  title: 'List a directory of a sandbox',
  description: `Lists the entries of a directory, at most ${MOST_ENTRIES}. For a tree or a search use run_command with \`find\` or \`grep\`.`,
  scopes: ['sandboxes:exec'],
  annotations: READS,
  input: { ...sandboxInput, path: pathInput },
  async call({ sandbox, path }, { api }) {
    try {
      const { entries } = await api.json<{ entries: Entry[] }>({
        method: 'GET',
        path: `${sandboxPath(sandbox)}/files`,
        query: { path },
      });
      return jsonResult({
        entries: entries.slice(0, MOST_ENTRIES).map(presentEntry),
        left_out: Math.max(entries.length - MOST_ENTRIES, 0),
      });
    } catch (error) {
      if (!(error instanceof AnswerTooLong)) throw error;
      return failure(
        `${path} has too many entries to list\nUse run_command with \`ls\` or \`find\`, and \`head\`.`,
      );
    }
  },
});

function presentEntry({ path, kind, size, modified_at: modifiedAt }: Entry): Record<string, unknown> {
  return { name: posix.basename(path), kind, size, modified_at: modifiedAt };
}

export const FILE_TOOLS = [readFile, writeFile, listFiles];
