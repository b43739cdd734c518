import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import { contextOf } from '../../access/request-context.js';
import { answers, type App } from '../../http/route.js';
import { MessageResponse } from '../../http/schema.js';
import { acceptFiles, Bytes, OCTETS } from '../../http/upload.js';
import { inUpload } from '../../idempotency/file-write.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import { PathHeaders, PathQuery } from '../../volumes/files/path-header.js';
import type { Address } from '../sessions/address.js';
import { read } from './read.js';
import { pathOf, REFUSALS, routeOptions, WRITE_REFUSALS, type Enter } from './route-options.js';
import { withFiles } from './session.js';
import { write } from './write.js';

export function contentRoutes(app: App, address: Address, enter: Enter): void {
  const { base, suffix } = address;
  app.get(
    `${base}/files/content`,
    {
      // HEAD would read the whole file.
      exposeHeadRoute: false,
      schema: {
        operationId: `read_sandbox_file${suffix}`,
        summary: 'Read a file of a sandbox',
        description: 'Sends the bytes of one file.',
        ...routeOptions(address),
        headers: PathHeaders,
        querystring: PathQuery,
        response: {
          ...answers(Bytes, ...REFUSALS),
          200: { description: 'The bytes of the file.', content: { [OCTETS]: { schema: Bytes } } },
        },
      },
    },
    async (request, reply) => {
      const path = pathOf(request);
      const { content, size } = await read(await enter(request, reply), path);
      // A browser must not run stored content under this origin.
      void reply.headers({ 'x-content-type-options': 'nosniff', 'content-disposition': 'attachment' });
      if (size !== undefined) void reply.header('content-length', size);
      return reply.type(OCTETS).send(content);
    },
  );

  acceptFiles(app, (raw) => {
    raw.put(
      `${base}/files/content`,
      {
        config: { upload: true },
        schema: {
          operationId: `write_sandbox_file${suffix}`,
          summary: 'Write a file of a sandbox',
          description:
            'The body is the content of the file, with any content-type or none. Missing directories are made. An existing file is replaced in one step and keeps its owner and permissions. A new file belongs to the user of the sandbox.',
          ...routeOptions(address),
          querystring: PathQuery,
          headers: Type.Object({ ...PathHeaders.properties, ...WriteHeaders.properties }),
          body: { content: { [OCTETS]: { schema: Bytes } } },
          response: answers(MessageResponse, ...REFUSALS, ...WRITE_REFUSALS),
        },
      },
      async (request, reply) => {
        const path = pathOf(request);
        const visit = await enter(request, reply);
        return inUpload(
          contextOf(request),
          (digest) => writerOf(request, reply, digest),
          (onComplete) =>
            withFiles(visit, (session) =>
              write(session, path, request.body as Readable | undefined, onComplete),
            ),
        );
      },
    );
  });
}
