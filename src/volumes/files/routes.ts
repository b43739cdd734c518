import { contextOf } from '../../access/request-context.js';
import type { Shared } from '../../context.js';
import { longJson } from '../../http/long-json.js';
import { answers, answersToBody, type App } from '../../http/route.js';
import { MessageResponse } from '../../http/schema.js';
import { isOfSdk } from '../../http/official-sdk.js';
import { sendJson } from '../../http/send-json.js';
import { inFileWrite } from '../../idempotency/file-write.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import type { PacedSteps } from '../../fairness/paced-steps.js';
import { contentRoutes } from './content-routes.js';
import { copy } from './copy.js';
import { inSdkForm } from './entry.js';
import { makeFileSlots } from './file-slots.js';
import { list } from './list.js';
import { makeDirectory } from './mkdir.js';
import { PathHeaders, PathQuery, readPath, RemoveHeaders } from './path-header.js';
import { remove } from './remove.js';
import { rename } from './rename.js';
import { BASE, params, REFUSALS, tags, targetOf, WRITE_REFUSALS } from './route-options.js';
import {
  MakeDirectoryRequest,
  TransferRequest,
  VolumeFileExists,
  VolumeFileList,
  VolumeFileStat,
} from './schema.js';
import { exists, stat } from './stat.js';

/** No audit events: guests change files without the service, and the events would bury the others. */
export function volumeFileRoutes(app: App, ctx: Shared, steps: PacedSteps): void {
  const enter = makeFileSlots(ctx);
  app.get(
    BASE,
    {
      schema: {
        operationId: 'list_volume_files',
        scope: 'volumes:read',
        summary: 'List a directory of a volume',
        description:
          'Returns the entries of a directory, at most 50,000. Symbolic links are shown and not followed. Devices, pipes and sockets are not shown.',
        tags,
        params,
        headers: PathHeaders,
        querystring: PathQuery,
        response: answers(VolumeFileList, ...REFUSALS),
      },
    },
    async (request, reply) => {
      const abandoned = await enter('list', request, reply);
      const target = targetOf(request);
      const entries = await list(contextOf(request), target, readPath(request), abandoned);
      const shown = isOfSdk(request) ? entries.map(inSdkForm) : entries;
      return sendJson(reply, await longJson(steps, target.orgId, { entries: shown }));
    },
  );

  app.delete(
    BASE,
    {
      schema: {
        operationId: 'delete_volume_file',
        scope: 'volumes:write',
        summary: 'Remove a file or directory of a volume',
        description:
          'Removes a file or an empty directory. With `x-msb-file-recursive: true` it removes a directory with everything in it.',
        tags,
        params,
        headers: RemoveHeaders,
        querystring: PathQuery,
        response: answersToBody(
          MessageResponse,
          ...REFUSALS,
          ...WRITE_REFUSALS,
          'idempotency_conflict',
          'volume_directory_not_empty',
        ),
      },
    },
    async (request, reply) => {
      const abandoned = await enter('work', request, reply);
      const recursive = request.headers['x-msb-file-recursive'] === 'true';
      const path = readPath(request);
      return inFileWrite(contextOf(request), writerOf(request, reply), () =>
        remove(contextOf(request), targetOf(request), path, { recursive, abandoned }),
      );
    },
  );

  app.get(
    `${BASE}/stat`,
    {
      schema: {
        operationId: 'stat_volume_file',
        scope: 'volumes:read',
        summary: 'Get the properties of a file or directory of a volume',
        description:
          'Returns the kind, size, permissions, owner and times of one path, and the target of a symbolic link.',
        tags,
        params,
        headers: PathHeaders,
        querystring: PathQuery,
        response: answers(VolumeFileStat, ...REFUSALS),
      },
    },
    async (request) => {
      const { metadata } = await stat(contextOf(request), targetOf(request), readPath(request));
      return { metadata: isOfSdk(request) ? inSdkForm(metadata) : metadata };
    },
  );

  app.get(
    `${BASE}/exists`,
    {
      schema: {
        operationId: 'volume_file_exists',
        scope: 'volumes:read',
        summary: 'Ask whether a path exists in a volume',
        description: 'Answers 200 in both cases; `exists` tells them apart.',
        tags,
        params,
        headers: PathHeaders,
        querystring: PathQuery,
        response: answers(VolumeFileExists, ...REFUSALS),
      },
    },
    (request) => exists(contextOf(request), targetOf(request), readPath(request)),
  );

  contentRoutes(app, enter);

  app.post(
    `${BASE}/mkdir`,
    {
      schema: {
        operationId: 'make_volume_directory',
        scope: 'volumes:write',
        summary: 'Make a directory in a volume',
        description:
          'Makes the directory and the missing directories above it. A directory that exists is no error.',
        tags,
        params,
        headers: WriteHeaders,
        body: MakeDirectoryRequest,
        response: answersToBody(MessageResponse, ...REFUSALS, ...WRITE_REFUSALS, 'idempotency_conflict'),
      },
    },
    (request, reply) =>
      inFileWrite(contextOf(request), writerOf(request, reply), () =>
        makeDirectory(contextOf(request), targetOf(request), request.body.path),
      ),
  );

  app.post(
    `${BASE}/copy`,
    {
      config: { waits: true },
      schema: {
        operationId: 'copy_volume_file',
        scope: 'volumes:write',
        summary: 'Copy a file within a volume',
        description: 'Copies one file. A file at the target is replaced in one step.',
        tags,
        params,
        headers: WriteHeaders,
        body: TransferRequest,
        response: answersToBody(MessageResponse, ...REFUSALS, ...WRITE_REFUSALS, 'idempotency_conflict'),
      },
    },
    async (request, reply) => {
      const abandoned = await enter('work', request, reply);
      return inFileWrite(contextOf(request), writerOf(request, reply), () =>
        copy(contextOf(request), targetOf(request), request.body, abandoned),
      );
    },
  );

  app.post(
    `${BASE}/rename`,
    {
      schema: {
        operationId: 'rename_volume_file',
        scope: 'volumes:write',
        summary: 'Rename or move a file or directory within a volume',
        description: 'Moves a file or directory to another path of the same volume.',
        tags,
        params,
        headers: WriteHeaders,
        body: TransferRequest,
        response: answersToBody(
          MessageResponse,
          ...REFUSALS,
          ...WRITE_REFUSALS,
          'idempotency_conflict',
          'volume_directory_not_empty',
        ),
      },
    },
    (request, reply) =>
      inFileWrite(contextOf(request), writerOf(request, reply), () =>
        rename(contextOf(request), targetOf(request), request.body),
      ),
  );
}
