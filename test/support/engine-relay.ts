import { createServer, request as ask, type IncomingMessage, type ServerResponse } from 'node:http';

export interface EngineRelay {
  close(): void;
}

/**
 * Listens on `socketPath`, and passes requests on to the Docker engine. Each waits for `before`, which may answer it:
 * then it is not passed on.
 */
export async function openEngineRelay(
  socketPath: string,
  engine: string,
  before: (request: IncomingMessage, answer: ServerResponse) => Promise<void> | void,
): Promise<EngineRelay> {
  const server = createServer((incoming, answer) => {
    void (async () => {
      await before(incoming, answer);
      if (answer.headersSent) return;
      const { method, url: path, headers } = incoming;
      const onward = ask({ socketPath: engine, method: method!, path: path!, headers }, (back) => {
        answer.writeHead(back.statusCode!, back.headers);
        back.pipe(answer);
      });
      incoming.pipe(onward);
    })();
  });
  await new Promise<void>((resolve) => void server.listen(socketPath, resolve));
  return {
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
