/** Collects the conditions of a query and numbers their parameters. The text contains only placeholders. */
export class Conditions {
  readonly values: unknown[] = [];
  private readonly parts: string[] = [];

  /** Adds a condition: `add((p) => `org_id = ${p(orgId)}`)`. */
  add(condition: (p: (value: unknown) => string) => string): this {
    this.parts.push(condition((value) => this.parameter(value)));
    return this;
  }

  parameter(value: unknown): string {
    this.values.push(value);
    return `$${this.values.length}`;
  }

  get text(): string {
    return this.parts.join('\n    and ');
  }
}
