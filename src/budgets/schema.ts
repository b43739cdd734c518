import { Type, type Static } from 'typebox';
import { EventActor } from '../audit/events/schema.js';
import { DateTime, Field, Int32, Named, Nullable, PageOf, Uuid, Variants, Words } from '../http/schema.js';
import { ACTIONS, HIGHEST_THRESHOLD, MEASURES, MOST_THRESHOLDS } from './budget.js';

const NAME_LENGTH = 100;

const name = Type.String({
  minLength: 1,
  maxLength: NAME_LENGTH,
  pattern: '^[^\\u0000-\\u001f\\u007f]+$',
  description: 'The name of the budget, which no other budget of the organization has.',
});
const limit = Type.String({
  pattern: '^[0-9]{1,12}([.][0-9]{1,6})?$',
  description:
    'What may be used in a UTC month, as a decimal number above 0: hours, or an amount in the major unit of the currency. Text, because a JSON number would be rounded.',
  examples: ['500.00'],
});
const thresholds = Type.Array(Int32({ minimum: 1, maximum: HIGHEST_THRESHOLD }), {
  minItems: 1,
  maxItems: MOST_THRESHOLDS,
  uniqueItems: true,
  description: 'The per cent of the limit at which an event is written, each once a month.',
});
const action = Words([...ACTIONS], {
  description:
    'What happens at 100 %. `warn`: events only. `refuse_starts`: nothing that the budget covers can be started until the next UTC month. `stop`: running sandboxes are stopped too, except those with the label `sandkeep.keep=true`.',
});
const measure = Words([...MEASURES], {
  description:
    'What is added up. `cost`: the cost by the price book of the installation. The others: hours of vCPUs, of GiB of memory, of GiB of disk, or of running sandboxes.',
});

const BudgetScope = Variants(
  'type',
  [
    Type.Object(
      {
        type: Type.Literal('organization', {
          description: 'Everything that the organization uses. A cost contains its storage.',
        }),
      },
      { additionalProperties: false },
    ),
    Type.Object(
      {
        type: Type.Literal('label', { description: 'The time in which sandboxes had a label.' }),
        key: Type.String({ description: 'The key of the label.' }),
        value: Type.String({ description: 'The value of the label.' }),
      },
      { additionalProperties: false },
    ),
    Type.Object(
      {
        type: Type.Literal('api_key', { description: 'The runs that the requests of an API key started.' }),
        api_key_id: Field(Uuid, 'The id of the API key.'),
      },
      { additionalProperties: false },
    ),
  ],
  { title: 'BudgetScope', description: 'The usage that a budget covers.' },
);
export const CreateBudgetRequest = Type.Object(
  {
    name,
    scope: BudgetScope,
    measure,
    limit,
    thresholds: Type.Optional(thresholds),
    action: Type.Optional(action),
  },
  { title: 'CreateBudgetRequest', description: 'The budget to create.', additionalProperties: false },
);
export type CreateBudgetRequest = Static<typeof CreateBudgetRequest>;

export const UpdateBudgetRequest = Type.Object(
  {
    name: Type.Optional(name),
    limit: Type.Optional(limit),
    thresholds: Type.Optional(thresholds),
    action: Type.Optional(action),
  },
  {
    title: 'UpdateBudgetRequest',
    description: 'The changes to a budget. Fields that are left out stay.',
    additionalProperties: false,
  },
);
export type UpdateBudgetRequest = Static<typeof UpdateBudgetRequest>;

const decimal = (description: string) => Nullable(Type.String({ description }));

export const BudgetResponse = Named(
  'BudgetResponse',
  {
    id: Field(Uuid, 'The id of the budget.'),
    org_id: Field(Uuid, 'The organization that the budget belongs to.'),
    name: Type.String({ description: 'The name of the budget.' }),
    scope: BudgetScope,
    measure,
    limit: Type.String({ description: 'What may be used in a UTC month, as a decimal number.' }),
    currency: Nullable(
      Type.String({ description: 'The currency of a budget of cost, by ISO 4217. Null: hours.' }),
    ),
    thresholds: Type.Array(Int32(), { description: 'The per cent at which events are written, ascending.' }),
    action,
    period_start: Field(DateTime, 'The start of the current UTC month.'),
    period_end: Field(DateTime, 'The start of the next UTC month, at which the budget renews.'),
    used: decimal(
      'What this month has used, as a decimal number. Null: `unpriced`. Hours are cut to twelve decimal places.',
    ),
    forecast: decimal(
      'The use at the end of the month if it continues as until now, as a decimal number. Null: `unpriced`.',
    ),
    used_percent: Nullable(
      Type.Number({
        format: 'double',
        description: 'The used part of the limit in per cent, cut to two decimal places. Null: `unpriced`.',
      }),
    ),
    reached: Type.Array(Int32(), { description: 'The thresholds that the current use reaches.' }),
    state: Words(['ok', 'warning', 'exhausted', 'unpriced'], {
      description:
        '`warning`: a threshold is reached. `exhausted`: the limit is reached. `unpriced`: the installation has no price book, or one in another currency, so nothing is enforced.',
    }),
    created_at: Field(DateTime, 'The time at which the budget was created.'),
    created_by: Field(EventActor, 'The actor who created the budget.'),
    updated_at: Field(DateTime, 'The time at which the budget last changed.'),
  },
  'A budget with its use in the current UTC month.',
);
export type BudgetResponse = Static<typeof BudgetResponse>;

export const PaginatedBudgetResponse = PageOf('PaginatedBudgetResponse', BudgetResponse);
