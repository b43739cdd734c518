import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import type { Shared } from '../context.js';
import { Slots } from '../fairness/slots.js';
import { ApiError } from '../http/errors.js';
import { answers, answersToBody, type App } from '../http/route.js';
import { Field, MessageResponse, PageQuery, Uuid } from '../http/schema.js';
import { createCredential } from './create.js';
import { deleteCredential } from './delete.js';
import { listCredentials } from './list.js';
import { presentCredential } from './present.js';
import { getCredential } from './queries.js';
import {
  CreateRegistryCredentialRequest,
  PaginatedRegistryCredentialResponse,
  RegistryCredentialResponse,
  RegistryCredentialTestResponse,
  TestRegistryCredentialRequest,
  UpdateRegistryCredentialRequest,
} from './schema.js';
import { testCredential } from './test-login.js';
import { updateCredential } from './update.js';

/** Every key of the organization pulls with them, so administrators alone manage them. */
const common = { tags: ['registry credentials'], scope: 'org:admin' } as const;
const params = Type.Object({ credential_id: Field(Uuid, 'The id of the registry credential.') });

export function registryCredentialRoutes(app: App, ctx: Shared): void {
  // Bounded, because a test holds its request until the registry answers.
  const testLimit = new Slots(ctx.settings.registryTests);

  app.get(
    '/v1/registry-credentials',
    {
      schema: {
        ...common,
        operationId: 'list_registry_credentials',
        summary: 'List registry credentials, oldest first',
        description:
          'Returns one page of the registry credentials of the organization, without their passwords.',
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers(PaginatedRegistryCredentialResponse),
      },
    },
    (request) => listCredentials(contextOf(request), callerOf(request).orgId, request.query),
  );

  app.post(
    '/v1/registry-credentials',
    {
      schema: {
        ...common,
        operationId: 'create_registry_credential',
        summary: 'Store a registry credential',
        description:
          'Stores a user name and a password for the images that a pattern matches. Starts from now on pull with it, unless their sandbox brings its own credentials or wants none. The operation takes no `Idempotency-Key`: a repeated request is answered 409.',
        body: CreateRegistryCredentialRequest,
        response: answersToBody(RegistryCredentialResponse, 'quota_exceeded', 'name_already_exists'),
      },
    },
    (request) => createCredential(contextOf(request), callerOf(request), request.body),
  );

  app.get(
    '/v1/registry-credentials/:credential_id',
    {
      schema: {
        ...common,
        operationId: 'get_registry_credential',
        summary: 'Get a registry credential',
        description: 'Returns one registry credential of the organization by its id, without its password.',
        params,
        response: answers(RegistryCredentialResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      const { orgId } = callerOf(request);
      const row = await getCredential(contextOf(request).pool, orgId, request.params.credential_id);
      if (!row) throw new ApiError('sandbox_not_found');
      return presentCredential(row);
    },
  );

  app.patch(
    '/v1/registry-credentials/:credential_id',
    {
      schema: {
        ...common,
        operationId: 'update_registry_credential',
        summary: 'Change a registry credential',
        description: 'Changes the given fields, such as a password that expired. The pattern stays.',
        params,
        body: UpdateRegistryCredentialRequest,
        response: answersToBody(RegistryCredentialResponse, 'sandbox_not_found'),
      },
    },
    (request) =>
      updateCredential(contextOf(request), callerOf(request), request.params.credential_id, request.body),
  );

  app.delete(
    '/v1/registry-credentials/:credential_id',
    {
      schema: {
        ...common,
        operationId: 'delete_registry_credential',
        summary: 'Delete a registry credential',
        description:
          'Deletes the credential with its password. Sandboxes that run stay. A later start of a sandbox that names it by id fails.',
        params,
        response: answersToBody(MessageResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      await deleteCredential(contextOf(request), callerOf(request), request.params.credential_id);
      return { message: 'registry credential deleted' };
    },
  );

  app.post(
    '/v1/registry-credentials/:credential_id/test',
    {
      config: { waits: true },
      schema: {
        ...common,
        operationId: 'test_registry_credential',
        summary: 'Test a registry credential',
        description:
          'Logs in at the registry now, or asks it for the manifest of an image, and returns the result.',
        params,
        body: TestRegistryCredentialRequest,
        response: answersToBody(RegistryCredentialTestResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      const caller = callerOf(request);
      const release = testLimit.acquire(caller.orgId);
      if (!release) {
        throw new ApiError(
          'rate_limited',
          'too many registry credentials are being tested: try again later',
          null,
          {
            headers: { 'retry-after': '5' },
          },
        );
      }
      const { credential_id } = request.params;
      return testCredential(contextOf(request), caller, credential_id, request.body).finally(release);
    },
  );
}
