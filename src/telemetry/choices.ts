/** The samplers that the specification of OpenTelemetry names for OTEL_TRACES_SAMPLER. */
export const SAMPLER_NAMES = [
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
  'always_on',
  'always_off',
  'traceidratio',
] as const;
export type SamplerName = (typeof SAMPLER_NAMES)[number];

export const OTLP_PROTOCOLS = ['http/protobuf', 'http/json'] as const;
export type OtlpProtocol = (typeof OTLP_PROTOCOLS)[number];

/** The values of OTEL_TRACES_EXPORTER and OTEL_LOGS_EXPORTER. */
export const EXPORTER_CHOICES = ['otlp', 'none'] as const;
