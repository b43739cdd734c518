import { Command } from 'commander';
import { readClient, withClientOptions, type ClientOptions } from './api-client.js';

/** A client of the API: it needs no access to the data directory. */
export function mcpCommand(env: NodeJS.ProcessEnv): Command {
  const command = new Command('mcp').description(
    'serve tools for agents by the Model Context Protocol, on standard input and output',
  );
  return withClientOptions(command).action(async (options: ClientOptions) => {
    const client = readClient(options, env);
    const { serveStdio } = await import('../mcp/stdio.js');
    await serveStdio(client);
  });
}
