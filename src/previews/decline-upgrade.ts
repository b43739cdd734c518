import { ServerResponse, type IncomingMessage, type Server } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Serves a request whose upgrade is not taken as an ordinary one. Node reads no body of a request that asks for an
 * upgrade, once a server has a listener for them. So the server parses the request again, without the `Upgrade`.
 */
export function declineUpgrade(server: Server, request: IncomingMessage, socket: Socket, head: Buffer): void {
  if (socket.destroyed || isAnswering(request, socket)) return void socket.destroy();
  const lines = [`${request.method} ${request.url} HTTP/${request.httpVersion}`];
  const { rawHeaders } = request;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (rawHeaders[at]!.toLowerCase() !== 'upgrade') lines.push(`${rawHeaders[at]}: ${rawHeaders[at + 1]}`);
  }
  // The server adds one more for each time that it takes the connection.
  socket.removeAllListeners('timeout');
  // The body is in front of the bytes that have not been read.
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), head]));
  server.emit('connection', socket);
}

/** An answer to an earlier request still holds the connection, and would mix with the one of this request. */
function isAnswering(request: IncomingMessage, socket: Socket): boolean {
  const answer = new ServerResponse(request);
  try {
    answer.assignSocket(socket);
  } catch {
    return true;
  }
  answer.detachSocket(socket);
  return false;
}
