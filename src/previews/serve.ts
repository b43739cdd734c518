import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyBaseLogger } from 'fastify';
import { ApiError } from '../http/errors.js';
import { answerError, responseOn } from './answer.js';
import type { PreviewHosts } from './host.js';
import { readHost } from './read-host.js';
import { RESERVED_PATH, type PreviewAccess, type PreviewRequest, type PreviewResponse } from './types.js';

export interface ServingParts {
  log: FastifyBaseLogger;
  hosts: PreviewHosts;
  access: PreviewAccess;
}

/** Serves the requests of the listener: host, reserved paths, grant. */
export class Serving {
  constructor(private readonly parts: ServingParts) {}

  request(request: PreviewRequest, response: PreviewResponse): void {
    response.on('error', () => undefined);
    this.answer(request, response).catch((error: unknown) => {
      answerError(request, response, this.refusalOf(error));
    });
  }

  upgrade(request: IncomingMessage, socket: Socket): void {
    const response = responseOn(request, socket);
    if (response) this.request(request, response);
    else socket.destroy();
  }

  private async answer(request: PreviewRequest, response: PreviewResponse): Promise<void> {
    const { access, hosts } = this.parts;
    const host = readHost(hosts, request);
    if (isReserved(request.url!)) return access.serve(host, request, response);
    const judged = await access.judge(host, request.headers);
    if ('refused' in judged) return access.refuse(host, judged.refused, request, response);
    throw new ApiError('not_ready');
  }

  private refusalOf(error: unknown): ApiError {
    if (error instanceof ApiError) return error;
    this.parts.log.error({ err: error }, 'a request for a preview failed');
    return new ApiError('internal_error');
  }
}

/** A path that a server could read as a reserved one after its escapes is not reserved, and reaches the sandbox. */
function isReserved(url: string): boolean {
  return url.startsWith(RESERVED_PATH);
}
