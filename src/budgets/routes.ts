import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { answers, answersToWrite, type App } from '../http/route.js';
import { Field, MessageResponse, PageQuery, Uuid } from '../http/schema.js';
import { writerOf } from '../idempotency/keyed.js';
import { WriteHeaders } from '../idempotency/schema.js';
import { createBudget } from './create.js';
import { deleteBudget } from './delete.js';
import { listBudgets, readBudget } from './list.js';
import {
  BudgetResponse,
  CreateBudgetRequest,
  PaginatedBudgetResponse,
  UpdateBudgetRequest,
} from './schema.js';
import { updateBudget } from './update.js';

const tags = ['billing'];
const params = Type.Object({ budget_id: Field(Uuid, 'The id of the budget.') });

export function budgetRoutes(app: App): void {
  app.get(
    '/v1/budgets',
    {
      schema: {
        operationId: 'list_budgets',
        scope: 'billing:read',
        summary: 'List budgets with their use',
        description:
          'Returns one page of the budgets of the organization by name, each with its use and forecast of this month.',
        tags,
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers(PaginatedBudgetResponse),
      },
    },
    (request) => listBudgets(contextOf(request), callerOf(request).orgId, request.query),
  );

  app.post(
    '/v1/budgets',
    {
      schema: {
        operationId: 'create_budget',
        scope: 'org:admin',
        summary: 'Create a budget',
        description:
          'Limits what a UTC month may use: of the organization, of a label or of an API key. The usage since the start of the month counts.',
        tags,
        headers: WriteHeaders,
        body: CreateBudgetRequest,
        response: answersToWrite(BudgetResponse, 'quota_exceeded', 'name_already_exists'),
      },
    },
    (request, reply) => createBudget(contextOf(request), writerOf(request, reply), request.body),
  );

  app.get(
    '/v1/budgets/:budget_id',
    {
      schema: {
        operationId: 'get_budget',
        scope: 'billing:read',
        summary: 'Get a budget with its use',
        description: 'Returns one budget with its use and forecast of this month.',
        tags,
        params,
        response: answers(BudgetResponse, 'budget_not_found'),
      },
    },
    (request) => readBudget(contextOf(request), callerOf(request).orgId, request.params.budget_id),
  );

  app.patch(
    '/v1/budgets/:budget_id',
    {
      schema: {
        operationId: 'update_budget',
        scope: 'org:admin',
        summary: 'Change a budget',
        description:
          'Changes the given fields. The scope and the measure stay. Starts are checked by the new limit at once.',
        tags,
        params,
        headers: WriteHeaders,
        body: UpdateBudgetRequest,
        response: answersToWrite(BudgetResponse, 'budget_not_found', 'name_already_exists'),
      },
    },
    (request, reply) =>
      updateBudget(contextOf(request), writerOf(request, reply), request.params.budget_id, request.body),
  );

  app.delete(
    '/v1/budgets/:budget_id',
    {
      schema: {
        operationId: 'delete_budget',
        scope: 'org:admin',
        summary: 'Delete a budget',
        description: 'Deletes the budget. Nothing is refused because of it any more.',
        tags,
        params,
        headers: WriteHeaders,
        response: answersToWrite(MessageResponse, 'budget_not_found'),
      },
    },
    (request, reply) => deleteBudget(contextOf(request), writerOf(request, reply), request.params.budget_id),
  );
}
