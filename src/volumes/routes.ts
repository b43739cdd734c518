import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { ApiError } from '../http/errors.js';
import { answers, answersToWrite, type App } from '../http/route.js';
import { Field, MessageResponse, Uuid, Words } from '../http/schema.js';
import { writerOf } from '../idempotency/keyed.js';
import { WriteHeaders } from '../idempotency/schema.js';
import { createVolume } from './create.js';
import { deleteVolume } from './delete.js';
import { presentVolume } from './present.js';
import { getHostVolume, getVolume, listVolumes } from './queries.js';
import { restoreVolume } from './restore.js';
import { CreateVolumeRequest, UpdateVolumeRequest, VolumeResponse } from './schema.js';
import { updateVolume } from './update.js';

const tags = ['volumes'];
const params = Type.Object({ id: Field(Uuid, 'The id of the volume.') });

export function volumeRoutes(app: App): void {
  app.get(
    '/v1/volumes',
    {
      schema: {
        operationId: 'list_volumes',
        scope: 'volumes:read',
        summary: 'List volumes',
        description: 'Returns the active volumes of the organization as an array, without pages.',
        tags,
        querystring: Type.Object(
          {
            include: Type.Optional(
              Words(['deleted'], {
                description: '`deleted` lists volumes that are being deleted, too. They can be restored.',
              }),
            ),
          },
          { additionalProperties: false },
        ),
        response: answers(Type.Array(VolumeResponse, { description: 'The volumes of the organization.' })),
      },
    },
    async (request) => {
      const deleting = request.query.include === 'deleted';
      const volumes = await listVolumes(contextOf(request).pool, callerOf(request).orgId, { deleting });
      return volumes.map(presentVolume);
    },
  );

  app.get(
    '/v1/volumes/default',
    {
      schema: {
        operationId: 'get_default_volume',
        scope: 'volumes:read',
        summary: "Get the organization's host volume",
        description: 'Returns the volume of which bind mounts show parts. It cannot be deleted.',
        tags,
        response: answers(VolumeResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      const volume = await getHostVolume(contextOf(request).pool, callerOf(request).orgId);
      if (!volume) throw new ApiError('sandbox_not_found');
      return presentVolume(volume);
    },
  );

  app.get(
    '/v1/volumes/:id',
    {
      schema: {
        operationId: 'get_volume',
        scope: 'volumes:read',
        summary: 'Get a volume',
        description: 'Returns the volume. A volume that is being deleted is found until it is purged.',
        tags,
        params,
        response: answers(VolumeResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      const volume = await getVolume(contextOf(request).pool, callerOf(request).orgId, request.params.id);
      if (!volume) throw new ApiError('sandbox_not_found');
      return presentVolume(volume);
    },
  );

  app.post(
    '/v1/volumes',
    {
      schema: {
        operationId: 'create_volume',
        scope: 'volumes:write',
        summary: 'Create a volume',
        description: 'Creates a managed volume. A sandbox mounts it by its name.',
        tags,
        headers: WriteHeaders,
        body: CreateVolumeRequest,
        response: answersToWrite(VolumeResponse, 'quota_exceeded', 'volume_already_exists'),
      },
    },
    (request, reply) => createVolume(contextOf(request), writerOf(request, reply), request.body),
  );

  app.delete(
    '/v1/volumes/:id',
    {
      schema: {
        operationId: 'delete_volume',
        scope: 'volumes:write',
        summary: 'Schedule an unused volume for deletion',
        description:
          'Marks a volume that no sandbox mounts as `deleting`. The service purges it later; until then it can be restored.',
        tags,
        params,
        headers: WriteHeaders,
        response: answersToWrite(MessageResponse, 'sandbox_not_found', 'volume_in_use', 'host_volume'),
      },
    },
    (request, reply) => deleteVolume(contextOf(request), writerOf(request, reply), request.params.id),
  );

  app.patch(
    '/v1/volumes/:id',
    {
      schema: {
        operationId: 'update_volume',
        scope: 'volumes:write',
        summary: 'Change the cap or the labels of a volume',
        description: 'Changes the given fields of a managed volume and returns it.',
        tags,
        params,
        headers: WriteHeaders,
        body: UpdateVolumeRequest,
        response: answersToWrite(
          VolumeResponse,
          'quota_exceeded',
          'sandbox_not_found',
          'host_volume',
          'invalid_state_transition',
        ),
      },
    },
    (request, reply) =>
      updateVolume(contextOf(request), writerOf(request, reply), request.params.id, request.body),
  );

  app.post(
    '/v1/volumes/:id/restore',
    {
      schema: {
        operationId: 'restore_volume',
        scope: 'volumes:write',
        summary: 'Restore a volume that is being deleted',
        description:
          'Makes a volume with the status `deleting` active again. After the purge it is not found.',
        tags,
        params,
        headers: WriteHeaders,
        response: answersToWrite(VolumeResponse, 'sandbox_not_found', 'volume_already_exists'),
      },
    },
    (request, reply) => restoreVolume(contextOf(request), writerOf(request, reply), request.params.id),
  );
}
