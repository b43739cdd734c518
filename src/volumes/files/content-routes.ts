import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import { contextOf } from '../../access/request-context.js';
import { answers, type App } from '../../http/route.js';
import { MessageResponse } from '../../http/schema.js';
import { acceptFiles, Bytes, OCTETS } from '../../http/upload.js';
import { inUpload } from '../../idempotency/file-write.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import type { EnterFiles } from './file-slots.js';
import { PathHeaders, PathQuery, readPath } from './path-header.js';
import { read } from './read.js';
import { BASE, params, REFUSALS, tags, targetOf, WRITE_REFUSALS } from './route-options.js';
import { write } from './write.js';

export function contentRoutes(app: App, enter: EnterFiles): void {
  app.get(
    `${BASE}/content`,
    {
      // HEAD would read the whole file.
      exposeHeadRoute: false,
      schema: {
        operationId: 'read_volume_file',
        scope: 'volumes:read',
        summary: 'Read a file of a volume',
        description: 'Sends the bytes of one file.',
        tags,
        params,
        headers: PathHeaders,
        querystring: PathQuery,
        response: {
          ...answers(Bytes, ...REFUSALS),
          200: { description: 'The bytes of the file.', content: { [OCTETS]: { schema: Bytes } } },
        },
      },
    },
    async (request, reply) => {
      const abandoned = await enter('work', request, reply);
      const { content, size } = await read(
        contextOf(request),
        targetOf(request),
        readPath(request),
        abandoned,
      );
      // A browser must not run stored content under this origin.
      void reply.headers({ 'x-content-type-options': 'nosniff', 'content-disposition': 'attachment' });
      return reply.type(OCTETS).header('content-length', size).send(content);
    },
  );

  acceptFiles(app, (raw) => {
    raw.put(
      `${BASE}/content`,
      {
        config: { upload: true },
        schema: {
          operationId: 'write_volume_file',
          scope: 'volumes:write',
          summary: 'Write a file of a volume',
          description:
            'The body is the content of the file, with any content-type or none. Missing directories are made. An existing file is replaced in one step and keeps its permissions.',
          tags,
          params,
          querystring: PathQuery,
          headers: Type.Object({ ...PathHeaders.properties, ...WriteHeaders.properties }),
          body: { content: { [OCTETS]: { schema: Bytes } } },
          response: answers(MessageResponse, ...REFUSALS, ...WRITE_REFUSALS, 'idempotency_conflict'),
        },
      },
      async (request, reply) => {
        const abandoned = await enter('work', request, reply);
        const length = request.headers['content-length'];
        return inUpload(
          contextOf(request),
          (digest) => writerOf(request, reply, digest),
          (onComplete) =>
            write(contextOf(request), targetOf(request), readPath(request), {
              body: request.body as Readable | undefined,
              length: length === undefined ? undefined : Number(length),
              abandoned,
              onComplete,
            }),
        );
      },
    );
  });
}
