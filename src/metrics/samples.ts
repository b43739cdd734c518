import type { Counter, Gauge, Registry } from 'prom-client';
import type { Library } from './library.js';

export interface Sample {
  kind: 'Gauge' | 'Counter';
  name: string;
  help: string;
  value: number;
  labels: Record<string, string>;
}

export function gauge(name: string, help: string, value: number, labels: Sample['labels'] = {}): Sample {
  return { kind: 'Gauge', name, help, value, labels };
}

/** A total that is counted elsewhere. */
export function total(name: string, help: string, value: number, labels: Sample['labels'] = {}): Sample {
  return { kind: 'Counter', name, help, value, labels };
}

/** Metrics that are measured together, and replaced together: a series without a sample disappears. */
export class Published {
  private readonly metrics = new Map<string, Gauge | Counter>();

  constructor(
    private readonly library: Library,
    private readonly registry: Registry,
  ) {}

  replace(samples: readonly Sample[]): void {
    for (const metric of this.metrics.values()) {
      metric.reset();
      // The library gives a metric without labels the value 0, which nobody measured.
      metric.remove({});
    }
    for (const sample of samples) {
      const metric = this.metricOf(sample);
      metric.inc(sample.labels, sample.value);
    }
  }

  private metricOf({ kind, name, help, labels }: Sample): Gauge | Counter {
    const known = this.metrics.get(name);
    if (known) return known;
    const registers = [this.registry];
    const made = new this.library[kind]({ name, help, labelNames: Object.keys(labels), registers });
    made.remove({});
    this.metrics.set(name, made);
    return made;
  }
}
