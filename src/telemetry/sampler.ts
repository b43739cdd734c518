import { isSpanContextValid, trace } from '@opentelemetry/api';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  SamplingDecision,
  TraceIdRatioBasedSampler,
  type Sampler,
  type SamplingResult,
} from '@opentelemetry/sdk-trace';
import type { SamplerName } from './choices.js';

const SAMPLE: SamplingResult = { decision: SamplingDecision.RECORD_AND_SAMPLED };
const SKIP: SamplingResult = { decision: SamplingDecision.NOT_RECORD };

/** A rate with a burst of one second, by `performance.now()`. */
export class Allowance {
  private left: number;
  private at = performance.now();

  constructor(private readonly perSecond: number) {
    this.left = perSecond;
  }

  take(): boolean {
    const now = performance.now();
    this.left = Math.min(this.perSecond, this.left + ((now - this.at) / 1_000) * this.perSecond);
    this.at = now;
    if (this.left < 1) return false;
    this.left -= 1;
    return true;
  }
}

/**
 * Decides by the standard samplers, with a limit for callers. A caller chooses the trace id and the flag, so both could
 * make this service sample every request. Beyond the limit a trace of a caller is not sampled.
 */
export class LimitedSampler implements Sampler {
  private readonly root: Sampler;
  private readonly followsParent: boolean;
  private readonly samplesAll: boolean;

  constructor(
    private readonly name: SamplerName,
    ratio: number,
    private readonly callers: Allowance,
  ) {
    this.followsParent = name.startsWith('parentbased_');
    this.samplesAll = name.endsWith('always_on') || (name.endsWith('traceidratio') && ratio >= 1);
    this.root = this.samplesAll
      ? new AlwaysOnSampler()
      : name.endsWith('always_off')
        ? new AlwaysOffSampler()
        : new TraceIdRatioBasedSampler(ratio);
  }

  shouldSample(...asked: Parameters<Sampler['shouldSample']>): SamplingResult {
    const parent = trace.getSpanContext(asked[0]);
    const decide = () => this.root.shouldSample(...asked);
    if (!parent || !isSpanContextValid(parent)) return decide();
    const isSampled = (parent.traceFlags & 1) === 1;
    if (parent.isRemote !== true) return isSampled ? SAMPLE : SKIP;
    const wanted = this.followsParent ? isSampled : decide().decision === SamplingDecision.RECORD_AND_SAMPLED;
    if (!wanted) return SKIP;
    return this.samplesAll || this.callers.take() ? SAMPLE : SKIP;
  }

  toString(): string {
    return `LimitedSampler{${this.name}}`;
  }
}
