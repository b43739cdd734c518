/**
 * Collects the conditions of a query and numbers their parameters. The text holds only `$n`; values never enter it.
 */
export class Conditions {
  readonly values: unknown[] = [];
  private readonly parts: string[] = [];

  /** Adds a condition: `add((p) => `org_id = ${p(orgId)}`)`, where `p` takes a value and gives its placeholder. */
  add(condition: (p: (value: unknown) => string) => string): this {
    this.parts.push(condition((value) => this.parameter(value)));
    return this;
  }

  /** Takes a value; gives its placeholder. */
  parameter(value: unknown): string {
    this.values.push(value);
    return `$${this.values.length}`;
  }

  /** All conditions, joined by `and`. */
  get text(): string {
    return this.parts.join('\n    and ');
  }
}
