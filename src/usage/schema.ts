import { Type, type Static } from 'typebox';
import { DateTime, documented, Field, Int64, Named, Nullable, Uuid } from '../http/schema.js';

const quantity = (description: string) => Type.Number({ format: 'double', description });
const quantities = {
  vcpu_seconds: quantity('The number of vCPUs times the seconds they ran.'),
  mem_mib_seconds: quantity('The memory in MiB times the seconds it was held.'),
  disk_mib_seconds: quantity('The disk size in MiB times the seconds the sandbox ran.'),
};
const day = Field(DateTime, 'The first instant of the UTC day.');

export const SandboxUsage = Named(
  'UsageBreakdown',
  {
    rows: Type.Array(
      Named(
        'SandboxDailyUsage',
        { day, sandbox_id: Field(Uuid, 'The id of the sandbox.'), ...quantities },
        'The compute that one sandbox used on one UTC day.',
      ),
      { description: 'One row for each sandbox and UTC day with usage.' },
    ),
    sandboxes: Type.Array(
      Named(
        'SandboxIdentity',
        {
          id: Field(Uuid, 'The id of the sandbox.'),
          name: Type.String({ description: 'The name of the sandbox.' }),
          slug: Type.String({ description: 'The slug of the sandbox.' }),
        },
        'The names of a sandbox in a report.',
      ),
      { description: 'The names of the sandboxes in `rows`.' },
    ),
  },
  'Compute usage by sandbox and UTC day.',
);
const cost = Nullable(
  Type.String({
    ...documented({ pattern: '^\\d+(\\.\\d+)?$' }),
    description:
      'The cost in major units of the currency, as an exact decimal, such as `0.1008`. Null without a price book.',
  }),
);
const currency = Nullable(
  Type.String({ description: 'The ISO 4217 code of the currency. Null without a price book.' }),
);
const minor_unit_digits = Nullable(
  Type.Integer({
    description: 'The number of decimal digits of the minor unit: 2 for cents. Null without a price book.',
  }),
);

export const LabelUsage = Named(
  'LabelBreakdown',
  {
    key: Type.Optional(Type.String({ description: 'The key of the label. Absent if there are several.' })),
    keys: Type.Array(Type.String(), { description: 'The keys of the labels.' }),
    currency,
    minor_unit_digits,
    rows: Type.Array(
      Named(
        'LabelDailyUsage',
        {
          day,
          value: Type.Optional(
            Type.String({ description: 'The value of the label. Absent if there are several keys.' }),
          ),
          values: Type.Array(Nullable(Type.String()), {
            description:
              'The value of each key, in the order of `keys`. Null: the sandbox had no such label.',
          }),
          ...quantities,
          cost,
        },
        'The compute used with one combination of values on one UTC day.',
      ),
      { description: 'One row for each combination of values and UTC day with usage.' },
    ),
    unlabelled: Type.Array(
      Named(
        'UnlabelledDailyUsage',
        { day, ...quantities, cost },
        'The compute that sandboxes with none of the labels used on one UTC day.',
      ),
      { description: 'One row for each UTC day with usage of sandboxes with none of the labels.' },
    ),
  },
  'Compute usage and cost by values of labels and UTC day.',
);

export const StorageUsage = Named(
  'StorageBreakdown',
  {
    rows: Type.Array(
      Named(
        'StorageDailyUsage',
        {
          day,
          volume_id: Field(
            Uuid,
            'The id of the volume. An extension: or of a snapshot, or of a paused sandbox.',
          ),
          mib_seconds: quantity('The used storage in MiB times the seconds it was used.'),
        },
        'The storage that one volume used on one UTC day.',
      ),
      { description: 'One row for each volume and UTC day with usage.' },
    ),
    volumes: Type.Array(
      Named(
        'VolumeIdentity',
        {
          id: Field(Uuid, 'The id of the volume, snapshot or paused sandbox.'),
          name: Type.Optional(
            Nullable(Type.String({ description: 'The name of the volume. Null for the host volume.' })),
          ),
        },
        'The name of a volume in a report.',
      ),
      { description: 'The names of the volumes in `rows`. A volume that was deleted can be missing.' },
    ),
  },
  'Storage usage by volume and UTC day.',
);

export const UsageSummary = Named(
  'UsageSummary',
  {
    period_start: Field(DateTime, 'The first instant of the month.'),
    period_end: Field(DateTime, 'The first instant of the next month.'),
    line_items: Type.Array(
      Named(
        'UsageLineItem',
        {
          name: Type.String({ description: 'The name of the metric, such as `vcpu`.' }),
          quantity: quantity('The amount used, in `unit`.'),
          unit: Type.String({ description: 'The unit of `quantity`, such as `vcpu_hour`.' }),
          amount_cents: Int64({ description: 'The cost in minor units, rounded half up to a whole one.' }),
        },
        'The use and the cost of one metric in the month.',
      ),
      { description: 'One item for each metric.' },
    ),
    total_cents: Int64({ description: 'The sum of the line items.' }),
    projected_spend_cents: Int64({
      description: 'The cost of the whole month if usage continues at the present rate.',
    }),
    currency,
    minor_unit_digits,
    daily: Type.Array(
      Named(
        'UsageDailyPoint',
        {
          date: Field(DateTime, 'The first instant of the UTC day.'),
          metric: Type.String({ description: 'The name of the metric, such as `vcpu`.' }),
          quantity: quantity('The amount used on that day, in units of the metric.'),
        },
        'The use of one metric on one UTC day.',
      ),
      { description: 'The use of each metric on each UTC day.' },
    ),
    storage_gib: Nullable(
      Type.Number({
        format: 'double',
        description:
          'The storage used in all volumes by their latest readings, in GiB. Null without a reading.',
      }),
    ),
  },
  'The usage and the cost of a UTC month. Amounts are in minor units of the currency, such as cents.',
);
export type UsageSummary = Static<typeof UsageSummary>;
