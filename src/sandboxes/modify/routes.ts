import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import { answersToBody, answersToWrite, type App } from '../../http/route.js';
import { Field, Uuid } from '../../http/schema.js';
import { modifySandbox, planFrom } from './modify.js';
import { fromPlan } from './plan.js';
import { ApplyRequest, ModificationPlan, PlanRequest } from './schema.js';

const params = Type.Object({ sandbox_id: Field(Uuid, 'The id of the sandbox.') });
const tags = ['sandboxes'];

export function modificationRoutes(app: App): void {
  app.post(
    '/v1/sandboxes/:sandbox_id/modifications/plan',
    {
      schema: {
        operationId: 'plan_sandbox_modification',
        scope: 'sandboxes:write',
        summary: 'Plan a change of the secrets of a sandbox',
        description:
          'Shows the effect of a change, and changes nothing. The request has no value of a secret.',
        tags,
        params,
        body: PlanRequest,
        response: answersToBody(
          ModificationPlan,
          'invalid_sandbox_config',
          'sandbox_not_found',
          'modification_unsupported',
        ),
      },
    },
    (request) => {
      const { orgId, access } = callerOf(request);
      const key = { id: request.params.sandbox_id, requiredLabels: access.labels };
      return planFrom(contextOf(request), orgId, key, fromPlan(request.body));
    },
  );

  app.put(
    '/v1/sandboxes/:sandbox_id',
    {
      // The gateway of a sandbox is beside its engine.
      config: { onWorker: true },
      schema: {
        operationId: 'modify_sandbox',
        scope: 'sandboxes:write',
        summary: 'Change the secrets of a sandbox',
        description:
          'Rotates, changes and removes secrets of a sandbox that runs, with effect before the answer. A new secret or placeholder needs a sandbox that does not run, because the guest gets it at a start.',
        tags,
        params,
        headers: WriteHeaders,
        body: ApplyRequest,
        response: answersToWrite(
          ModificationPlan,
          'invalid_sandbox_config',
          'sandbox_not_found',
          'modification_in_progress',
          'modification_refused',
          'modification_unsupported',
          'modification_failed',
        ),
      },
    },
    (request, reply) => {
      const caller = writerOf(request, reply);
      const key = { id: request.params.sandbox_id, requiredLabels: callerOf(request).access.labels };
      return modifySandbox(contextOf(request), caller, key, request.body);
    },
  );
}
