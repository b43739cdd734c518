import { Type, type Static } from 'typebox';
import { DateTime, Int64, Named, Nullable, Uuid } from '../http/schema.js';

const quantity = Type.Number({ format: 'double' });
const quantities = { vcpu_seconds: quantity, mem_mib_seconds: quantity, disk_mib_seconds: quantity };

export const SandboxUsage = Named('UsageBreakdown', {
  rows: Type.Array(
    Named('SandboxDailyUsage', {
      day: DateTime,
      sandbox_id: Uuid,
      ...quantities,
    }),
  ),
  sandboxes: Type.Array(Named('SandboxIdentity', { id: Uuid, name: Type.String(), slug: Type.String() })),
});
export const LabelUsage = Named('LabelBreakdown', {
  key: Type.String(),
  rows: Type.Array(Named('LabelDailyUsage', { day: DateTime, value: Type.String(), ...quantities })),
  unlabelled: Type.Array(
    Named('UnlabelledDailyUsage', { day: DateTime, ...quantities }, 'What ran without that label.'),
  ),
});

export const StorageUsage = Named('StorageBreakdown', {
  rows: Type.Array(Named('StorageDailyUsage', { day: DateTime, volume_id: Uuid, mib_seconds: quantity })),
  volumes: Type.Array(Named('VolumeIdentity', { id: Uuid, name: Type.Optional(Nullable(Type.String())) })),
});

export const UsageSummary = Named(
  'UsageSummary',
  {
    period_start: DateTime,
    period_end: DateTime,
    line_items: Type.Array(
      Named('UsageLineItem', {
        name: Type.String(),
        quantity,
        unit: Type.String(),
        amount_cents: Int64({ description: 'Rounded to a whole minor unit, half of one up.' }),
      }),
    ),
    total_cents: Int64({ description: 'The sum of the line items.' }),
    projected_spend_cents: Int64({
      description: 'What the period costs when use goes on to its end at the pace so far.',
    }),
    currency: Nullable(
      Type.String({ description: 'ISO 4217, whose minor units the amounts are. Null without a price book.' }),
    ),
    minor_unit_digits: Nullable(
      Type.Integer({ description: 'How many decimal digits of the currency an amount has: 2 for cents.' }),
    ),
    daily: Type.Array(Named('UsageDailyPoint', { date: DateTime, metric: Type.String(), quantity })),
    storage_gib: Nullable(
      Type.Number({ format: 'double', description: 'In all volumes, by their last readings.' }),
    ),
  },
  'A calendar month of UTC. Amounts are in minor units of the currency, such as cents.',
);
export type UsageSummary = Static<typeof UsageSummary>;
