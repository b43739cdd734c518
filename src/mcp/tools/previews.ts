import { Type } from 'typebox';
import { sandboxIdOf, sandboxInput } from '../sandbox-path.js';
import { jsonResult, READS, tool } from '../tool.js';

const LIFETIME_SECS = { default: 3_600, max: 24 * 3_600 };

interface Preview {
  id: string;
  port: number;
  path: string;
  origin: string;
  label: string | null;
  expires_at: string;
  url?: string | null;
}

const openPreview = tool({
  name: 'open_preview',
  title: 'Open a port of a sandbox to the user',
  description:
    'Makes a link to a TCP port of a sandbox, such as a web server that you started there. Give the link to the user: everybody who has it can use the port until it ends.',
  scopes: ['sandboxes:exec', 'sandboxes:read'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false },
  input: {
    ...sandboxInput,
    port: Type.Integer({ minimum: 1, maximum: 65_535, description: 'The TCP port in the sandbox.' }),
    path: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 2_048,
        description: 'The path that the link opens. Default: `/`.',
      }),
    ),
    ttl_secs: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: LIFETIME_SECS.max,
        default: LIFETIME_SECS.default,
        description: `The seconds after which the link ends. Default: ${LIFETIME_SECS.default}.`,
      }),
    ),
  },
  async call({ sandbox, port, path = '/', ttl_secs: ttl = LIFETIME_SECS.default }, { api }) {
    const id = await sandboxIdOf(api, sandbox);
    const body = { port, path, ttl_secs: ttl, label: 'mcp' };
    const made = await api.json<Preview>({ method: 'POST', path: `/v1/sandboxes/${id}/previews`, body });
    return jsonResult({ preview: made.id, url: made.url, port, expires_at: made.expires_at });
  },
});

const listPreviews = tool({
  name: 'list_previews',
  title: 'List the previews of a sandbox',
  description: 'Lists the open links to ports of a sandbox, without their tokens.',
  scopes: ['sandboxes:exec', 'sandboxes:read'],
  annotations: READS,
  input: sandboxInput,
  async call({ sandbox }, { api }) {
    const id = await sandboxIdOf(api, sandbox);
    const { data } = await api.json<{ data: Preview[] }>({
      method: 'GET',
      path: `/v1/sandboxes/${id}/previews`,
      query: { limit: '100' },
    });
    return jsonResult({
      previews: data.map(({ id: preview, port, path, origin, expires_at: expiresAt }) => ({
        preview,
        port,
        path,
        origin,
        expires_at: expiresAt,
      })),
    });
  },
});

const closePreview = tool({
  name: 'close_preview',
  title: 'Close a preview',
  description: 'Ends a link to a port of a sandbox at once, with its open connections.',
  scopes: ['sandboxes:exec', 'sandboxes:read'],
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true },
  input: {
    ...sandboxInput,
    preview: Type.String({
      minLength: 1,
      description: 'The `preview` that open_preview or list_previews returned.',
    }),
  },
  async call({ sandbox, preview }, { api }) {
    const id = await sandboxIdOf(api, sandbox);
    const path = `/v1/sandboxes/${id}/previews/${encodeURIComponent(preview)}`;
    return jsonResult(await api.json({ method: 'DELETE', path }));
  },
});

export const PREVIEW_TOOLS = [openPreview, listPreviews, closePreview];
