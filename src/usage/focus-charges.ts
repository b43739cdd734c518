import { csvField, CSV_LINE_END } from '../lib/csv.js';
import { addMillis, monthAfter, shortInstant, startOfMonth, type Instant } from '../lib/instant.js';
import { decimalText, pricedQuantity, QUANTITY_SCALE, type Metric, type PriceBook } from '../prices/price.js';
import type { Allowance } from './allowance.js';
import { focusLine, METERS, PROVIDERS, type FocusRecord } from './focus-columns.js';

const DAY_MS = 86_400_000;
/** The decimal places of `ConsumedQuantity`. */
const MICROS_SCALE = 6;

export interface Account {
  id: string;
  name: string;
  book: PriceBook;
  allowance: Allowance;
  metrics: readonly Metric[];
  /** Whether the month is over and all its charges are in the report, so that its rounding is a charge. */
  isWhole: (month: Instant) => boolean;
}

interface Used {
  day: string;
  id: string;
  quantities: bigint[];
  name: string;
  tags: string;
  /** Default: that of the metric. */
  type: string | null;
}

/** Turns rows of usage, in the order of their days, into charges. Remembers the sums of the current month. */
export class FocusCharges {
  private month: Instant | undefined;
  private billed = new Map<Metric, bigint>();
  private readonly fixed: FocusRecord;
  private readonly texts: { json: string } & Pick<Used, 'name' | 'tags' | 'type'> = {
    json: '',
    name: '',
    tags: '',
    type: null,
  };

  constructor(private readonly account: Account) {
    this.fixed = {
      ...PROVIDERS,
      BillingAccountId: account.id,
      BillingAccountName: csvField(account.name),
      BillingCurrency: account.book.currency,
    };
  }

  /**
   * `lines`: as the queries write them for `focus`. Yields few lines at once, so that other requests have their turns.
   */
  *of(lines: readonly string[]): Generator<string> {
    const CHUNK = 200;
    for (let first = 0; first < lines.length; first += CHUNK) {
      const text = lines
        .slice(first, first + CHUNK)
        .flatMap((line) => this.chargesOf(this.read(line)))
        .map((record) => focusLine(record) + CSV_LINE_END)
        .join('');
      if (text !== '') yield text;
    }
  }

  /** The rounding of the last month. */
  finish(): string {
    return this.closeMonth()
      .map((record) => focusLine(record) + CSV_LINE_END)
      .join('');
  }

  private read(line: string): Used {
    const end = line.indexOf('],');
    const [day = '', id = ''] = line.split(',', 2);
    const quantities = line
      .slice(line.indexOf('[') + 1, end)
      .split(',')
      .map(BigInt);
    const json = line.slice(end + 2);
    // A resource has the same names on many days.
    if (json !== this.texts.json) {
      const [name, tags, type = null] = JSON.parse(json) as [
        name: string | null,
        tags: Record<string, string> | null,
        type?: string | null,
      ];
      this.texts.type = type;
      this.texts.json = json;
      this.texts.name = name === null ? '' : csvField(name);
      this.texts.tags = tags === null ? '' : csvField(JSON.stringify(tags));
    }
    return { day, id, quantities, name: this.texts.name, tags: this.texts.tags, type: this.texts.type };
  }

  private chargesOf(used: Used): FocusRecord[] {
    const month = startOfMonth(`${used.day}T00:00:00.000000Z`);
    const records = month === this.month ? [] : this.closeMonth();
    this.month = month;
    this.account.metrics.forEach((metric, index) => {
      const quantity = used.quantities[index]!;
      const charged = this.account.allowance.chargedOf(used.day, metric, quantity);
      if (charged > 0n) records.push(this.charge(used, metric, charged, false));
      if (quantity > charged) records.push(this.charge(used, metric, quantity - charged, true));
    });
    return records;
  }

  private charge(used: Used, metric: Metric, quantity: bigint, isIncluded: boolean): FocusRecord {
    const { day, id, name, tags } = used;
    const { title, service, sku, resourceType: usual } = METERS[metric];
    const resourceType = used.type ?? usual;
    const price = this.account.book.prices[metric];
    const priced = pricedQuantity(metric, quantity);
    const cost = { value: priced.value * price.value, scale: priced.scale + price.scale };
    const list = decimalText(cost);
    const billed = isIncluded ? '0' : list;
    if (!isIncluded) this.billed.set(metric, (this.billed.get(metric) ?? 0n) + cost.value);
    const start = `${day}T00:00:00.000000Z`;
    return {
      ...this.fixed,
      ...this.period(),
      ...service,
      ...sku,
      BilledCost: billed,
      ChargeCategory: 'Usage',
      ChargeDescription: `${title} of a ${resourceType.toLowerCase()}${isIncluded ? ' within the included hours' : ''}`,
      ChargeFrequency: 'Usage-Based',
      ChargePeriodStart: shortInstant(start),
      ChargePeriodEnd: shortInstant(addMillis(start, DAY_MS)),
      ConsumedQuantity: decimalText({ value: quantity, scale: MICROS_SCALE }),
      ContractedCost: list,
      EffectiveCost: billed,
      ListCost: list,
      ListUnitPrice: decimalText(price),
      PricingQuantity: decimalText(priced),
      ResourceId: id,
      ResourceName: name,
      ResourceType: resourceType,
      Tags: tags,
      x_Included: String(isIncluded),
    };
  }

  /** The difference between the rounded amount of each metric and the sum of its charges. */
  private closeMonth(): FocusRecord[] {
    const { month, account, billed } = this;
    this.billed = new Map();
    if (month === undefined || !account.isWhole(month)) return [];
    return account.metrics.flatMap((metric) => {
      const scale = QUANTITY_SCALE + account.book.prices[metric].scale;
      const digits = account.book.minorUnitDigits;
      const amount = account.allowance.amountOf(month, metric) * 10n ** BigInt(scale);
      const value = amount - (billed.get(metric) ?? 0n) * 10n ** BigInt(digits);
      return value === 0n ? [] : [this.rounding(metric, decimalText({ value, scale: scale + digits }))];
    });
  }

  private rounding(metric: Metric, cost: string): FocusRecord {
    const { title, service } = METERS[metric];
    const { BillingPeriodStart: ChargePeriodStart, BillingPeriodEnd: ChargePeriodEnd } = this.period();
    return {
      ...this.fixed,
      ...this.period(),
      ...service,
      BilledCost: cost,
      ContractedCost: cost,
      EffectiveCost: cost,
      ListCost: cost,
      ChargeCategory: 'Adjustment',
      ChargeDescription: `${title}: rounding of the month to whole minor units`,
      ChargeFrequency: 'One-Time',
      ChargePeriodStart,
      ChargePeriodEnd,
      x_Included: 'false',
    };
  }

  private period() {
    const start = this.month!;
    return { BillingPeriodStart: shortInstant(start), BillingPeriodEnd: shortInstant(monthAfter(start)) };
  }
}
