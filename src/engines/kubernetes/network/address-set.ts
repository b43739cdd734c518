import { parseIp, stringifyIp } from 'ip-bigint';

/** From the first address to the last, as numbers. Those of IPv4 are negative. */
type Range = readonly [first: bigint, last: bigint];

const V4_BITS = 32;
const V6_BITS = 128;
const V4_COUNT = 1n << BigInt(V4_BITS);

/** Addresses, and perhaps the cluster: its Pods that are no sandboxes, and its resolvers. */
export class AddressSet {
  static readonly CLUSTER = new AddressSet(true, []);

  /** `ranges`: sorted, with a gap between one and the next. */
  private constructor(
    readonly hasCluster: boolean,
    private readonly ranges: readonly Range[],
  ) {}

  static of(blocks: readonly string[]): AddressSet {
    return new AddressSet(false, joined(blocks.map(rangeOf)));
  }

  withCluster(hasCluster: boolean): AddressSet {
    return new AddressSet(hasCluster, this.ranges);
  }

  get isEmpty(): boolean {
    return !this.hasCluster && this.ranges.length === 0;
  }

  /** As few CIDR blocks as there can be. */
  get blocks(): string[] {
    return this.ranges.flatMap(blocksOf);
  }

  static union(sets: readonly AddressSet[]): AddressSet {
    const hasCluster = sets.some((set) => set.hasCluster);
    return new AddressSet(hasCluster, joined(sets.flatMap(({ ranges }) => ranges)));
  }

  minus(other: AddressSet): AddressSet {
    const rest: Range[] = [];
    let next = 0;
    for (const [first, last] of this.ranges) {
      let from = first;
      while (next < other.ranges.length && other.ranges[next]![1] < first) next += 1;
      for (let at = next; at < other.ranges.length && other.ranges[at]![0] <= last; at += 1) {
        const [start, end] = other.ranges[at]!;
        if (start > from) rest.push([from, start - 1n]);
        from = end + 1n;
      }
      if (from <= last) rest.push([from, last]);
    }
    return new AddressSet(this.hasCluster && !other.hasCluster, rest);
  }

  intersect(other: AddressSet): AddressSet {
    const both: Range[] = [];
    for (let i = 0, j = 0; i < this.ranges.length && j < other.ranges.length;) {
      const [a, b] = [this.ranges[i]!, other.ranges[j]!];
      const first = a[0] > b[0] ? a[0] : b[0];
      const last = a[1] < b[1] ? a[1] : b[1];
      if (first <= last) both.push([first, last]);
      if (a[1] < b[1]) i += 1;
      else j += 1;
    }
    return new AddressSet(this.hasCluster && other.hasCluster, both);
  }

  equals(other: AddressSet): boolean {
    return this.minus(other).isEmpty && other.minus(this).isEmpty;
  }
}

function joined(ranges: readonly Range[]): Range[] {
  const result: [bigint, bigint][] = [];
  for (const [first, last] of ranges.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))) {
    const before = result.at(-1);
    const isNextFamily = before !== undefined && before[1] < 0n && first >= 0n;
    if (before && !isNextFamily && first <= before[1] + 1n) before[1] = before[1] > last ? before[1] : last;
    else result.push([first, last]);
  }
  return result;
}

function rangeOf(block: string): Range {
  const [address = '', prefix] = block.split('/');
  const { number, version } = parseIp(address);
  const bits = version === 4 ? V4_BITS : V6_BITS;
  const size = 1n << BigInt(bits - Number(prefix ?? bits));
  const first = number - (number % size) - (version === 4 ? V4_COUNT : 0n);
  return [first, first + size - 1n];
}

function blocksOf([first, last]: Range): string[] {
  const version = first < 0n ? 4 : 6;
  const bits = version === 4 ? V4_BITS : V6_BITS;
  const offset = version === 4 ? V4_COUNT : 0n;
  const blocks: string[] = [];
  for (let from = first + offset; from <= last + offset;) {
    let prefix = bits;
    const sizeOf = (length: number) => 1n << BigInt(bits - length);
    while (
      prefix > 0 &&
      from % sizeOf(prefix - 1) === 0n &&
      from + sizeOf(prefix - 1) - 1n <= last + offset
    ) {
      prefix -= 1;
    }
    blocks.push(`${stringifyIp({ number: from, version })}/${prefix}`);
    from += sizeOf(prefix);
  }
  return blocks;
}
