import { csvField } from '../lib/csv.js';
import type { Metric } from '../prices/price.js';

export const FOCUS_VERSION = '1.4';

const PROVIDER = 'Sandkeep';

/** In the order of the specification, which is alphabetical. Columns of ours begin with `x_` and come last. */
export const FOCUS_COLUMNS = [
  'BilledCost',
  'BillingAccountId',
  'BillingAccountName',
  'BillingCurrency',
  'BillingPeriodEnd',
  'BillingPeriodStart',
  'ChargeCategory',
  'ChargeClass',
  'ChargeDescription',
  'ChargeFrequency',
  'ChargePeriodEnd',
  'ChargePeriodStart',
  'ConsumedQuantity',
  'ConsumedUnit',
  'ContractedCost',
  'EffectiveCost',
  'HostProviderName',
  'InvoiceIssuerName',
  'ListCost',
  'ListUnitPrice',
  'PricingCategory',
  'PricingQuantity',
  'PricingUnit',
  'RegionId',
  'RegionName',
  'ResourceId',
  'ResourceName',
  'ResourceType',
  'ServiceCategory',
  'ServiceName',
  'ServiceProviderName',
  'ServiceSubcategory',
  'SkuId',
  'SkuMeter',
  'SkuPriceDetails',
  'SkuPriceId',
  'Tags',
  'x_Included',
] as const;
type FocusColumn = (typeof FOCUS_COLUMNS)[number];

/** Encoded fields of CSV. A column that is left out is null. */
export type FocusRecord = Partial<Record<FocusColumn, string>>;

interface Meter {
  /** For descriptions. */
  title: string;
  service: FocusRecord;
  sku: FocusRecord;
  resourceType: string;
}

const COMPUTE = {
  ServiceCategory: 'Compute',
  ServiceName: 'Sandkeep Sandboxes',
  ServiceSubcategory: 'Containers',
};
const STORAGE = {
  ServiceCategory: 'Storage',
  ServiceName: 'Sandkeep Volumes',
  ServiceSubcategory: 'File Storage',
};

/** `property`: what one pricing unit has, by the names of the specification. */
function sku(metric: Metric, SkuMeter: string, units: [string, string], property: string): FocusRecord {
  const [PricingUnit, ConsumedUnit] = units;
  return {
    SkuId: metric,
    SkuPriceId: metric,
    SkuMeter,
    PricingUnit,
    ConsumedUnit,
    PricingCategory: 'Standard',
    SkuPriceDetails: csvField(JSON.stringify({ [property]: 1 })),
  };
}

const BYTES: [string, string] = ['GiB-Hours', 'MiB-Seconds'];

export const METERS: Record<Metric, Meter> = {
  vcpu_hour: {
    title: 'vCPUs',
    service: COMPUTE,
    sku: sku('vcpu_hour', 'vCPU Time', ['Core-Hours', 'Core-Seconds'], 'CoreCount'),
    resourceType: 'Sandbox',
  },
  memory_gib_hour: {
    title: 'Memory',
    service: COMPUTE,
    sku: sku('memory_gib_hour', 'Memory Time', BYTES, 'MemorySize'),
    resourceType: 'Sandbox',
  },
  disk_gib_hour: {
    title: 'Disk',
    service: COMPUTE,
    sku: sku('disk_gib_hour', 'Disk Time', BYTES, 'DiskSpace'),
    resourceType: 'Sandbox',
  },
  storage_gib_hour: {
    title: 'Storage',
    service: STORAGE,
    sku: sku('storage_gib_hour', 'Volume Storage', BYTES, 'DiskSpace'),
    resourceType: 'Volume',
  },
};

/** A self-hosted installation is its own provider, host and issuer. */
export const PROVIDERS = {
  HostProviderName: PROVIDER,
  InvoiceIssuerName: PROVIDER,
  ServiceProviderName: PROVIDER,
};

export function focusLine(record: FocusRecord): string {
  return FOCUS_COLUMNS.map((column) => record[column] ?? '').join(',');
}
