import { createServer, request as ask, type IncomingMessage, type ServerResponse } from 'node:http';

export interface EngineRelay {
  close(): void;
}

/**
 * Listens on `socketPath`, and passes requests on to the Docker engine. Each waits for `before`, which may answer it:
 * then it is not passed on. Its answer waits for `after`, which the engine has finished then. It passes on no commands
 * in containers.
 */
export async function openEngineRelay(
  socketPath: string,
  engine: string,
  before: (request: IncomingMessage, answer: ServerResponse) => Promise<void> | void,
  after: (request: IncomingMessage) => Promise<void> | void = () => undefined,
): Promise<EngineRelay> {
  const server = createServer((incoming, answer) => {
    void (async () => {
      await before(incoming, answer);
      if (answer.headersSent) return;
      const { method, url: path, headers } = incoming;
      const cut = () => answer.destroy();
      const onward = ask({ socketPath: engine, method: method!, path: path!, headers }, (back) => {
        back.on('error', cut);
        void (async () => {
          await after(incoming);
          answer.writeHead(back.statusCode!, back.headers);
          back.pipe(answer);
        })();
      });
      // The engine, or the client, may be killed.
      onward.on('error', cut);
      answer.on('close', () => onward.destroy());
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
