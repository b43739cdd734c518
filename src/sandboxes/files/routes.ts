import type { FastifyReply, FastifyRequest } from 'fastify';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { longJson } from '../../http/long-json.js';
import { answers, answersToBody, type App } from '../../http/route.js';
import { MessageResponse } from '../../http/schema.js';
import { sendJson } from '../../http/send-json.js';
import { inFileWrite } from '../../idempotency/file-write.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import type { PacedSteps } from '../../fairness/paced-steps.js';
import { PathHeaders, PathQuery, RemoveHeaders } from '../../volumes/files/path-header.js';
import { ADDRESSES, type Address } from '../sessions/address.js';
import type { Entrance } from '../sessions/entrance.js';
import { contentRoutes } from './content-routes.js';
import { list } from './list.js';
import { makeDirectory } from './mkdir.js';
import { remove } from './remove.js';
import { enterBy, pathOf, REFUSALS, routeOptions, WRITE_REFUSALS, type Enter } from './route-options.js';
import {
  MakeDirectoryRequest,
  SandboxFileExists,
  SandboxFileList,
  SandboxFileStat,
  TransferRequest,
} from './schema.js';
import { withFiles, type FileSession } from './session.js';
import { exists, stat } from './stat.js';
import { copy, rename } from './transfer.js';

/** The files of running sandboxes, in the manner of those of volumes. */
export function sandboxFileRoutes(app: App, entrance: Entrance, steps: PacedSteps): void {
  const enter = enterBy(entrance);
  for (const address of ADDRESSES) {
    readingRoutes(app, address, enter, steps);
    contentRoutes(app, address, enter);
    writingRoutes(app, address, enter);
  }
}

function readingRoutes(app: App, address: Address, enter: Enter, steps: PacedSteps): void {
  const { suffix } = address;
  const base = `${address.base}/files`;
  const common = { ...routeOptions(address), headers: PathHeaders, querystring: PathQuery };

  app.get(
    base,
    {
      schema: {
        operationId: `list_sandbox_files${suffix}`,
        summary: 'List a directory of a sandbox',
        description: 'Returns the entries of a directory, at most 50,000.',
        ...common,
        response: answers(SandboxFileList, ...REFUSALS),
      },
    },
    async (request, reply) => {
      const path = pathOf(request);
      const entries = await withFiles(await enter(request, reply), (session) => list(session, path));
      return sendJson(reply, await longJson(steps, callerOf(request).orgId, { entries }));
    },
  );

  app.get(
    `${base}/stat`,
    {
      schema: {
        operationId: `stat_sandbox_file${suffix}`,
        summary: 'Get the properties of a file or directory of a sandbox',
        description: 'Returns the kind, size, permissions, owner and times of one path.',
        ...common,
        response: answers(SandboxFileStat, ...REFUSALS),
      },
    },
    async (request, reply) => {
      const path = pathOf(request);
      return withFiles(await enter(request, reply), (session) => stat(session, path));
    },
  );

  app.get(
    `${base}/exists`,
    {
      schema: {
        operationId: `sandbox_file_exists${suffix}`,
        summary: 'Ask whether a path exists in a sandbox',
        description:
          'Answers 200 in both cases; `exists` tells them apart. A symbolic link exists if its target does.',
        ...common,
        response: answers(SandboxFileExists, ...REFUSALS),
      },
    },
    async (request, reply) => {
      const path = pathOf(request);
      return withFiles(await enter(request, reply), (session) => exists(session, path));
    },
  );
}

function writingRoutes(app: App, address: Address, enter: Enter): void {
  const { suffix } = address;
  const base = `${address.base}/files`;
  const common = routeOptions(address);
  const write = <T>(
    request: FastifyRequest,
    reply: FastifyReply,
    work: (session: FileSession) => Promise<T>,
  ): Promise<T> =>
    inFileWrite(contextOf(request), writerOf(request, reply), async () =>
      withFiles(await enter(request, reply), work),
    );

  app.delete(
    base,
    {
      schema: {
        operationId: `delete_sandbox_file${suffix}`,
        summary: 'Remove a file or directory of a sandbox',
        description:
          'Removes a file or an empty directory. With `x-msb-file-recursive: true` it removes a directory with everything in it.',
        ...common,
        headers: RemoveHeaders,
        querystring: PathQuery,
        response: answersToBody(
          MessageResponse,
          ...REFUSALS,
          ...WRITE_REFUSALS,
          'sandbox_directory_not_empty',
        ),
      },
    },
    (request, reply) => {
      const path = pathOf(request);
      const recursive = request.headers['x-msb-file-recursive'] === 'true';
      return write(request, reply, (session) => remove(session, path, { recursive }));
    },
  );

  app.post(
    `${base}/mkdir`,
    {
      schema: {
        operationId: `make_sandbox_directory${suffix}`,
        summary: 'Make a directory in a sandbox',
        description:
          'Makes the directory and the missing directories above it. A directory that exists is no error.',
        ...common,
        headers: WriteHeaders,
        body: MakeDirectoryRequest,
        response: answersToBody(MessageResponse, ...REFUSALS, ...WRITE_REFUSALS),
      },
    },
    (request, reply) => write(request, reply, (session) => makeDirectory(session, request.body.path)),
  );

  app.post(
    `${base}/copy`,
    {
      schema: {
        operationId: `copy_sandbox_file${suffix}`,
        summary: 'Copy a file within a sandbox',
        description: 'Copies one file. A file at the target is replaced in one step.',
        ...common,
        headers: WriteHeaders,
        body: TransferRequest,
        response: answersToBody(MessageResponse, ...REFUSALS, ...WRITE_REFUSALS),
      },
    },
    (request, reply) => write(request, reply, (session) => copy(session, request.body)),
  );

  app.post(
    `${base}/rename`,
    {
      schema: {
        operationId: `rename_sandbox_file${suffix}`,
        summary: 'Rename or move a file or directory within a sandbox',
        description: 'Moves a file or directory to another path of the same file system.',
        ...common,
        headers: WriteHeaders,
        body: TransferRequest,
        response: answersToBody(
          MessageResponse,
          ...REFUSALS,
          ...WRITE_REFUSALS,
          'sandbox_directory_not_empty',
        ),
      },
    },
    (request, reply) => write(request, reply, (session) => rename(session, request.body)),
  );
}
