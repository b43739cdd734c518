import { Command, InvalidArgumentError, Option } from 'commander';
import { ACTIONS, MEASURES } from '../budgets/budget.js';
import type { BudgetResponse } from '../budgets/schema.js';
import { ExplainedError } from '../lib/explained-error.js';
import type { Page } from '../lib/page.js';
import { readClient, sendForJson, withClientOptions, type ClientOptions } from './api-client.js';
import { print } from './command.js';
import { common, OperatorCommand } from './operator-command.js';
import { json, wide } from './options.js';
import { table } from './table.js';
import { label } from './values.js';

interface BudgetOptions extends ClientOptions {
  json?: true;
  wide?: true;
}

interface SetOptions extends BudgetOptions {
  limit?: string;
  measure?: string;
  label?: { key: string; value: string };
  apiKey?: string;
  thresholds?: number[];
  action?: string;
}

type Client = ReturnType<typeof readClient>;

const PAGE = 100;

/** A client of the API: it needs no access to the data directory. */
export function budgetsCommand(env: NodeJS.ProcessEnv): Command {
  return new Command('budgets')
    .description('budgets of a month: of the organization, a label or a key, as a client of the API')
    .addCommand(listCommand(env))
    .addCommand(showCommand(env))
    .addCommand(setCommand(env))
    .addCommand(deleteCommand(env));
}

function budgetCommand(name: string): Command {
  return withClientOptions(new OperatorCommand(name)).addOption(common(json()));
}

function listCommand(env: NodeJS.ProcessEnv): Command {
  return budgetCommand('list')
    .addOption(common(wide()))
    .description('list the budgets of the organization of the key, with their use of this month')
    .action(async (options: BudgetOptions) => {
      const budgets = await listAll(readClient(options, env));
      print(options, budgets, budgets.length === 0 ? 'no budgets' : budgetTable(budgets, options));
    });
}

function showCommand(env: NodeJS.ProcessEnv): Command {
  return budgetCommand('show')
    .addOption(common(wide()))
    .description('show a budget with its use and forecast of this month')
    .argument('<name>', 'name of the budget')
    .action(async (name: string, options: BudgetOptions) => {
      const budget = await named(readClient(options, env), name);
      print(options, budget, budgetTable([budget], options));
    });
}

function setCommand(env: NodeJS.ProcessEnv): Command {
  return budgetCommand('set')
    .addOption(common(wide()))
    .description('create a budget, or change its limit, thresholds or action')
    .argument('<name>', 'name of the budget')
    .option('--limit <number>', 'what may be used in a UTC month: hours, or an amount such as 500.00')
    .addOption(new Option('--measure <measure>', 'what is added up, default: cost').choices(MEASURES))
    .option('--label <key=value>', 'the budget covers sandboxes with this label', label)
    .option('--api-key <id>', 'the budget covers the runs that this key starts')
    .option('--thresholds <list>', 'per cent of the limit at which events are written: 50,80,100', percents)
    .addOption(new Option('--action <action>', 'what happens at 100 %').choices(ACTIONS))
    .action(async (name: string, options: SetOptions) => {
      const client = readClient(options, env);
      const existing = (await listAll(client)).find((budget) => budget.name === name);
      const budget = await (existing ? change(client, existing, options) : create(client, name, options));
      print(options, budget, budgetTable([budget], options));
    });
}

function deleteCommand(env: NodeJS.ProcessEnv): Command {
  return budgetCommand('delete')
    .description('delete a budget: nothing is refused because of it any more')
    .argument('<name>', 'name of the budget')
    .action(async (name: string, options: BudgetOptions) => {
      const client = readClient(options, env);
      const { id } = await named(client, name);
      const answer = await sendForJson<{ message: string }>(client, pathOf(id), { method: 'DELETE' });
      print(options, answer, answer.message);
    });
}

async function create(
  client: Client,
  name: string,
  { limit, measure = 'cost', label: labelled, apiKey, thresholds, action }: SetOptions,
): Promise<BudgetResponse> {
  if (limit === undefined) throw new ExplainedError('a new budget needs a limit: give --limit');
  if (labelled && apiKey !== undefined) throw new ExplainedError('give --label or --api-key, not both');
  const scope = labelled
    ? { type: 'label', ...labelled }
    : apiKey === undefined
      ? { type: 'organization' }
      : { type: 'api_key', api_key_id: apiKey };
  const body = { name, scope, measure, limit, ...given({ thresholds, action }) };
  return sendForJson<BudgetResponse>(client, '/v1/budgets', { method: 'POST', body });
}

async function change(
  client: Client,
  { id, name }: BudgetResponse,
  { limit, measure, label: labelled, apiKey, thresholds, action }: SetOptions,
): Promise<BudgetResponse> {
  if (measure !== undefined || labelled || apiKey !== undefined) {
    throw new ExplainedError(
      `the budget "${name}" exists, and keeps its scope and its measure: delete it first, or leave --measure, --label and --api-key out`,
    );
  }
  const body = given({ limit, thresholds, action });
  return sendForJson<BudgetResponse>(client, pathOf(id), { method: 'PATCH', body });
}

function given(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

async function listAll(client: Client): Promise<BudgetResponse[]> {
  const budgets: BudgetResponse[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const after: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page: Page<BudgetResponse> = await sendForJson(client, `/v1/budgets?limit=${PAGE}${after}`);
    budgets.push(...page.data);
    cursor = page.next_cursor;
  }
  return budgets;
}

async function named(client: Client, name: string): Promise<BudgetResponse> {
  const found = (await listAll(client)).find((budget) => budget.name === name);
  if (!found) throw new ExplainedError(`there is no budget "${name}": see "sandkeep budgets list"`);
  return found;
}

function percents(text: string): number[] {
  if (!/^\d{1,4}(,\d{1,4})*$/.test(text))
    throw new InvalidArgumentError('It must be numbers, such as 50,80,100.');
  return text.split(',').map(Number);
}

function pathOf(id: string): string {
  return `/v1/budgets/${id}`;
}

function budgetTable(budgets: readonly BudgetResponse[], options: BudgetOptions): string {
  const rows = budgets.map((budget) => [
    budget.name,
    scopeText(budget.scope),
    budget.used ?? '',
    budget.limit,
    budget.currency ?? budget.measure,
    budget.used_percent === null ? '' : `${budget.used_percent} %`,
    budget.forecast ?? '',
    budget.action,
    budget.state,
  ]);
  const head = ['NAME', 'COVERS', 'USED', 'LIMIT', 'UNIT', 'SHARE', 'FORECAST', 'ACTION', 'STATE'];
  return table(head, rows, { ...options, optional: ['FORECAST', 'ACTION'] });
}

function scopeText(scope: BudgetResponse['scope']): string {
  switch (scope.type) {
    case 'organization':
      return 'organization';
    case 'label':
      return `${scope.key}=${scope.value}`;
    case 'api_key':
      return `key ${scope.api_key_id}`;
  }
}
