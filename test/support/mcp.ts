import {
  Client as McpClient,
  StreamableHTTPClientTransport,
  type RequestOptions,
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

const INFO = { name: 'sandkeep-tests', version: '1.0.0' };

/** The official client of the protocol, connected to the tools of a service. */
export interface Agent {
  client: McpClient;
  /** Undefined on standard input and output. */
  sessionId: () => string | undefined;
  /** The text of a result, and whether it is a failure. */
  call(
    tool: string,
    input?: Record<string, unknown>,
    options?: RequestOptions,
  ): Promise<{ text: string; isError: boolean; value: any; content: any[] }>;
  close(): Promise<void>;
}

/** Commands of tests on a slow machine take longer than the usual minute. */
const TIMEOUT_MS = 400_000;

function agentOf(client: McpClient, sessionId: Agent['sessionId']): Agent {
  return {
    client,
    sessionId,
    async call(name, input = {}, options = {}) {
      const result = await client.callTool(
        { name, arguments: input },
        {
          timeout: TIMEOUT_MS,
          ...options,
        },
      );
      const content = result.content as any[];
      return {
        text: content.map(({ text = '' }) => text).join('\n'),
        isError: result.isError === true,
        value: result.structuredContent,
        content,
      };
    },
    close: () => client.close(),
  };
}

/** `revision`: of the protocol. From 2026-07-28 on there is no session. Default: one that begins with `initialize`. */
export async function connectHttp(url: string, key: string, revision?: string): Promise<Agent> {
  const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
    requestInit: { headers: { authorization: `Bearer ${key}` } },
  });
  const client = clientFor(revision);
  await client.connect(transport);
  return agentOf(client, () => transport.sessionId);
}

/** Starts the built program. */
export async function connectStdio(url: string, key: string, revision?: string): Promise<Agent> {
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [join(PACKAGE_ROOT, 'bin', 'sandkeep'), 'mcp'],
    env: { SANDKEEP_URL: url, SANDKEEP_API_KEY: key },
  });
  const client = clientFor(revision);
  await client.connect(transport);
  return agentOf(client, () => undefined);
}

function clientFor(revision: string | undefined): McpClient {
  return new McpClient(
    INFO,
    revision === undefined ? {} : { versionNegotiation: { mode: { pin: revision } } },
  );
}
