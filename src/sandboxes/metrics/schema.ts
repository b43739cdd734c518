import { Type, type Static } from 'typebox';
import { DateTime, Field, Int64, Named, Nullable, Uuid, Words } from '../../http/schema.js';

const Bytes = (description: string) => Nullable(Int64({ description }));

export const MetricsSample = Named(
  'SandboxMetricsSample',
  {
    timestamp: Field(DateTime, 'The time of the sample.'),
    cpu_percent: Type.Number({
      description:
        'The processor time since the previous sample, in percent of one virtual CPU. For the first sample: since the start of the run.',
    }),
    memory_bytes: Bytes('The memory in use, without the cache of files that the kernel can drop.'),
    host_memory_bytes: Bytes(
      'The memory of the machine that the sandbox takes, with its virtual machine and its monitor. Null: the runtime has no virtual machines.',
    ),
    disk_bytes: Bytes(
      'The room that the own disk of the sandbox takes. The engine measures it in the background after a request, at most once a minute.',
    ),
    disk_read_bytes: Bytes('The bytes read from disks since the start of the run.'),
    disk_write_bytes: Bytes('The bytes written to disks since the start of the run.'),
    net_rx_bytes: Bytes('The bytes received from the network since the start of the run.'),
    net_tx_bytes: Bytes('The bytes sent to the network since the start of the run.'),
    processes: Nullable(Int64({ description: 'The number of processes and threads.' })),
  },
  'The use of a sandbox at one time. Null: the runtime does not measure it, or has not measured it yet.',
);
export type MetricsSample = Static<typeof MetricsSample>;

export const SandboxMetrics = Named(
  'SandboxMetrics',
  {
    sandbox_id: Field(Uuid, 'The id of the sandbox.'),
    sample_interval_ms: Nullable(
      Int64({
        description:
          'The least time between two samples: `metrics_sample_interval_ms` of the specification, at least 1000. Null: sampling is off.',
      }),
    ),
    unavailable_reason: Field(
      Nullable(Words(['not_running', 'disabled', 'not_measured'])),
      'The reason for which `current` is null. `not_measured`: the engine gives no figures, or none yet.',
    ),
    cpu_limit_percent: Nullable(
      Type.Number({ description: 'The virtual CPUs of the sandbox, in percent of one.' }),
    ),
    memory_limit_bytes: Bytes('The memory of the sandbox.'),
    disk_limit_bytes: Bytes('The size of its disk. Null: no limit.'),
    current: Field(Nullable(MetricsSample), 'The latest sample of a running sandbox.'),
    history_interval_ms: Int64({
      description:
        'The time between two points of `history`. It grows with the number of sandboxes of the worker.',
    }),
    history: Type.Array(MetricsSample, {
      description:
        'The points of the last hour, from the oldest. They are in the memory of the worker: a restart of the service ends them.',
    }),
  },
  'The use of a sandbox: now and in the last hour.',
);
export type SandboxMetrics = Static<typeof SandboxMetrics>;
