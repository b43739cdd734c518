/**
 * Facts of the dataset "Cost and Usage" of FOCUS 1.4 (FinOps Open Cost and Usage Specification), for the columns that
 * reports have. Columns that the specification requires of every dataset are `mandatory`. The others depend on the
 * provider.
 */
export interface FocusColumnRule {
  level: 'mandatory' | 'conditional' | 'recommended';
  type: 'string' | 'decimal' | 'time' | 'json';
  nullable: boolean;
  /** The allowed values. Default: any. */
  values?: readonly string[];
  /** Must not be negative. */
  unsigned?: true;
  /** Null for every charge of these categories, and never null for usage. */
  usageOnly?: true;
}

const mandatory = (
  type: FocusColumnRule['type'],
  nullable = false,
  values?: readonly string[],
): FocusColumnRule => ({
  level: 'mandatory',
  type,
  nullable,
  ...(values && { values }),
});
const conditional = (
  type: FocusColumnRule['type'],
  more: Partial<FocusColumnRule> = {},
): FocusColumnRule => ({
  level: 'conditional',
  type,
  nullable: true,
  ...more,
});

const PARENTS = {
  Containers: 'Compute',
  'End User Computing': 'Compute',
  'Quantum Compute': 'Compute',
  'Serverless Compute': 'Compute',
  'Virtual Machines': 'Compute',
  'Other (Compute)': 'Compute',
  'Backup Storage': 'Storage',
  'Block Storage': 'Storage',
  'File Storage': 'Storage',
  'Object Storage': 'Storage',
  'Storage Platforms': 'Storage',
  'Other (Storage)': 'Storage',
} as const;
/** The category of each subcategory of compute and storage. */
export const FOCUS_CATEGORY_OF: Record<string, string> = PARENTS;

export const FOCUS_RULES: Record<string, FocusColumnRule> = {
  BilledCost: mandatory('decimal'),
  BillingAccountId: mandatory('string'),
  BillingAccountName: mandatory('string', true),
  BillingCurrency: mandatory('string'),
  BillingPeriodEnd: mandatory('time'),
  BillingPeriodStart: mandatory('time'),
  ChargeCategory: mandatory('string', false, ['Usage', 'Purchase', 'Tax', 'Credit', 'Adjustment']),
  ChargeClass: mandatory('string', true, ['Correction']),
  ChargeDescription: mandatory('string', true),
  ChargeFrequency: {
    level: 'recommended',
    type: 'string',
    nullable: false,
    values: ['One-Time', 'Recurring', 'Usage-Based'],
  },
  ChargePeriodEnd: mandatory('time'),
  ChargePeriodStart: mandatory('time'),
  ConsumedQuantity: conditional('decimal', { usageOnly: true }),
  ConsumedUnit: conditional('string', { usageOnly: true }),
  ContractedCost: mandatory('decimal'),
  EffectiveCost: mandatory('decimal'),
  HostProviderName: mandatory('string'),
  InvoiceIssuerName: mandatory('string'),
  ListCost: mandatory('decimal'),
  ListUnitPrice: conditional('decimal', { usageOnly: true, unsigned: true }),
  PricingCategory: conditional('string', {
    usageOnly: true,
    values: ['Standard', 'Dynamic', 'Committed', 'Other'],
  }),
  PricingQuantity: { ...mandatory('decimal', true), usageOnly: true },
  PricingUnit: { ...mandatory('string', true), usageOnly: true },
  RegionId: conditional('string'),
  RegionName: conditional('string'),
  ResourceId: conditional('string'),
  ResourceName: conditional('string'),
  ResourceType: conditional('string'),
  ServiceCategory: mandatory('string', false, ['Compute', 'Storage']),
  ServiceName: mandatory('string'),
  ServiceProviderName: mandatory('string'),
  ServiceSubcategory: {
    level: 'recommended',
    type: 'string',
    nullable: false,
    values: Object.keys(PARENTS),
  },
  SkuId: conditional('string', { usageOnly: true }),
  SkuMeter: conditional('string', { usageOnly: true }),
  SkuPriceDetails: conditional('json', { usageOnly: true }),
  SkuPriceId: conditional('string', { usageOnly: true }),
  Tags: conditional('json'),
};

/** The mandatory columns of FOCUS 1.4, transcribed apart from the rules above. */
export const FOCUS_MANDATORY = (
  'BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd BillingPeriodStart ChargeCategory ' +
  'ChargeClass ChargeDescription ChargePeriodEnd ChargePeriodStart ContractedCost EffectiveCost HostProviderName ' +
  'InvoiceIssuerName ListCost PricingQuantity PricingUnit ServiceCategory ServiceName ServiceProviderName'
).split(' ');

/** Names and units: singular or plural units with plural time units, of the recommended lists. */
export const FOCUS_UNIT = /^(Core|GiB|MiB)-(Hours|Seconds)$/;
