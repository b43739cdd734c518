import { ROOT_CONTEXT, SpanKind, trace } from '@opentelemetry/api';
import { SamplingDecision } from '@opentelemetry/sdk-trace';
import { expect, test } from 'vitest';
import type { SamplerName } from '../../src/telemetry/choices.js';
import { Allowance, LimitedSampler } from '../../src/telemetry/sampler.js';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';

/** The number of 1,000 requests that are sampled. */
function sampledOf(
  sampler: LimitedSampler,
  caller: { sampled: boolean; isRemote?: boolean } | undefined,
  idOf: (index: number) => string = () => TRACE,
): number {
  let sampled = 0;
  for (let index = 0; index < 1_000; index += 1) {
    const traceId = idOf(index);
    const context = caller
      ? trace.setSpanContext(ROOT_CONTEXT, {
          traceId,
          spanId: '00f067aa0ba902b7',
          isRemote: caller.isRemote ?? true,
          traceFlags: caller.sampled ? 1 : 0,
        })
      : ROOT_CONTEXT;
    const { decision } = sampler.shouldSample(context, traceId, 'GET', SpanKind.SERVER, {}, []);
    if (decision === SamplingDecision.RECORD_AND_SAMPLED) sampled += 1;
  }
  return sampled;
}
const make = (name: SamplerName, ratio = 1, perSecond = 0) =>
  new LimitedSampler(name, ratio, new Allowance(perSecond));
const randomId = (index: number) =>
  `${((index * 2_654_435_761) % 2 ** 32).toString(16).padStart(8, '0')}${'0'.repeat(23)}1`;

test.each([
  ['parentbased_always_on', 1_000, 1_000, 0],
  ['always_on', 1_000, 1_000, 1_000],
  ['parentbased_always_off', 0, 0, 0],
  ['always_off', 0, 0, 0],
] as const)('%s', (name, alone, asked, refused) => {
  const sampler = make(name);
  expect(sampledOf(sampler, undefined)).toBe(alone);
  expect(sampledOf(sampler, { sampled: true })).toBe(asked);
  expect(sampledOf(sampler, { sampled: false })).toBe(refused);
  // Work that follows a request of this installation is never decided again.
  expect(sampledOf(sampler, { sampled: true, isRemote: false })).toBe(1_000);
});

test('the flag of a caller is followed up to the limit', () => {
  expect(sampledOf(make('parentbased_always_off', 1, 20), { sampled: true })).toBeGreaterThanOrEqual(20);
  expect(sampledOf(make('parentbased_always_off', 1, 20), { sampled: true })).toBeLessThan(900);
  expect(sampledOf(make('parentbased_traceidratio', 0.1), { sampled: true })).toBe(0);
});

test('a caller that chooses trace ids below the ratio is limited too', () => {
  const sampler = make('traceidratio', 0.1, 20);
  expect(sampledOf(sampler, { sampled: false }, () => `${'0'.repeat(31)}1`)).toBeLessThan(900);
  expect(sampledOf(make('traceidratio', 0.1), { sampled: true }, () => `${'0'.repeat(31)}1`)).toBe(0);
});

test('the ratio holds for requests without a caller', () => {
  const sampled = sampledOf(make('parentbased_traceidratio', 0.25), undefined, randomId);
  expect(sampled).toBeGreaterThan(150);
  expect(sampled).toBeLessThan(350);
});
