import { Command, InvalidArgumentError } from 'commander';
import { flagOf, variableOf } from '../src/config/names.js';
import { OPTIONS } from '../src/config/options.js';
import { ExplainedError } from '../src/lib/explained-error.js';
import { auth, metrics, organizations, traces } from './arms.js';
import { backup } from './backup.js';
import { budgetTimes } from './budgets.js';
import { consoleTimes, type ConsoleOptions } from './console.js';
import { eventPages } from './event-pages.js';
import { events } from './events.js';
import { exec, type ExecOptions } from './exec.js';
import { fairPath, type FairPathOptions } from './fair-path.js';
import { firstStart } from './first-start.js';
import { refuseFlags, runtimeOption, type RuntimeName } from './flags.js';
import { gateway, type GatewayOptions } from './gateway.js';
import { kubernetesChanges, type ChangesOptions } from './kubernetes/changes.js';
import { kubernetesStarts, type StartsOptions } from './kubernetes/starts.js';
import { many, type ManyOptions } from './many.js';
import type { MicrovmOptions } from './microvm-service.js';
import { neighbours, type NeighboursOptions } from './neighbours.js';
import { network, type NetworkOptions } from './network.js';
import { plannerHints } from './planner-hints.js';
import { previews, type PreviewsOptions } from './previews.js';
import { transfers, type TransferOptions } from './previews/transfers.js';
import { pgbench, type PgbenchOptions } from './speed/pgbench.js';
import { scaleOut } from './speed/scale-out.js';
import type { SpeedOptions } from './speed/sides.js';
import { snapshotCycles } from './snapshot-cycles.js';
import { snapshotCyclesMicrovm } from './snapshot-cycles-microvm.js';
import { snapshots, type SnapshotsOptions } from './snapshots.js';
import { snapshotsMicrovm } from './snapshots-microvm.js';
import { soak } from './speed/soak.js';
import { speedTable } from './speed/table.js';
import { statusTimes } from './status.js';
import { templates, type TemplatesOptions } from './templates.js';
import { startMicrovm, type MicrovmStartOptions } from './start/microvm.js';
import { start, type StartOptions } from './start.js';
import { usage } from './usage.js';

const EMULATION = ['--emulation', 'with microvm: emulated processors, where KVM is absent'] as const;
const KERNEL = ['--kernel <path>', 'with microvm: the kernel of virtual machines'] as const;

const WITH_MICROVM = 'with --runtime microvm';
const WITHOUT_MICROVM = 'without --runtime microvm';

type StartBench = Omit<StartOptions & MicrovmStartOptions, 'pool'> & { pool?: number; runtime: RuntimeName };
type NeighboursBench = Omit<NeighboursOptions, 'microvm'> & MicrovmOptions & { runtime: RuntimeName };
type SnapshotsBench = SnapshotsOptions &
  MicrovmOptions & { cycles?: number; minutes: number; runtime: RuntimeName };

await new Command('bench')
  .description(
    'measures the service, for every number in docs/performance. Without a command: every read and the writes in a large store, beside minimal servers',
  )
  // Options after a command belong to that command.
  .enablePositionalOptions()
  .option(
    '--scale <n>',
    'size of the data set: 1 has 100,000 sandboxes, 1,000,000 runs and 10,000,000 events',
    positive,
    1,
  )
  .option('--rounds <n>', 'rounds of each measure', count, 5)
  .option('--seconds <n>', 'seconds of each measure in a round', positive, 1)
  .option('--connections <n,n>', 'numbers of concurrent clients, measured in sequence', counts, [1, 32])
  .option(
    '--only <names>',
    'only measures whose names contain one of these words, separated by commas',
    words,
    [],
  )
  .option('--store <dir>', 'keeps the loaded data in this directory, and reuses it')
  .option(
    '--profile <dir>',
    "writes a profile of the service's CPU time (for Chrome's DevTools) to this directory",
  )
  .option(
    '--soak <minutes>',
    'replaces the table: the memory of each minute under all reads and writes',
    positive,
  )
  .option(
    '--processes <n,n>',
    'replaces the table: this many processes of the service on one database',
    counts,
  )
  .action((options: SpeedOptions & { soak?: number; processes?: number[] }) => {
    if (options.soak !== undefined) return soak(options, options.soak);
    if (options.processes !== undefined) return scaleOut(options, options.processes);
    return speedTable(options);
  })
  .addCommand(
    new Command('first-start')
      .description('from starting the program to the first answered request, on an empty directory and again')
      .option('--rounds <n>', 'number of rounds', count, 5)
      .action(({ rounds }: { rounds: number }) => firstStart(rounds)),
  )
  .addCommand(
    new Command('backup')
      .description('time and size of a backup and of its restore; --scale as above')
      .option('--scale <n>', 'size of the data set', positive, 0.01)
      .action(({ scale }: { scale: number }) => backup(scale)),
  )
  .addCommand(
    new Command('usage')
      .description('a month of usage: summed over runs, by our route, and by a bare server that has the rows')
      .option('--runs <n,n>', 'sizes of the history', sizes, [1_000, 10_000, 100_000, 1_000_000])
      .option('--rounds <n>', 'number of rounds', count, 7)
      .option('--year <sandboxes>', 'also a year of this many sandboxes; 0: none', natural, 0)
      .action(({ runs, rounds, year }: { runs: number[]; rounds: number; year: number }) =>
        usage(runs, rounds, year),
      ),
  )
  .addCommand(
    new Command('events')
      .description('concurrent creates with the event log, without it, and with a chain that writers lock')
      .option('--writers <n>', 'concurrent ones', count, 16)
      .option('--creates <n>', 'in each round', count, 1_000)
      .option('--rounds <n>', 'number of rounds', count, 5)
      .action(({ writers, creates, rounds }: { writers: number; creates: number; rounds: number }) =>
        events(writers, creates, rounds),
      ),
  )
  .addCommand(
    new Command('pgbench')
      .description('the database alone: pgbench with the statements of one create')
      .option('--program <path>', 'pgbench, of version 13 or later', 'pgbench')
      .option('--clients <n>', 'concurrent ones', count, 16)
      .option('--seconds <n>', 'duration in seconds', count, 10)
      .action((options: PgbenchOptions) => pgbench(options)),
  )
  .addCommand(
    new Command('event-pages')
      .description('pages of audit events in a small store, and in one with 124 months of history')
      .option('--events <n>', 'of the history', count, 2_000_000)
      .action(({ events: history }: { events: number }) => eventPages(history)),
  )
  .addCommand(
    new Command('hints')
      .description('queries with their planner hints and without them')
      .option('--sandboxes <n>', 'of the store', count, 100_000)
      .option('--rounds <n>', 'of each query', count, 15)
      .action(({ sandboxes, rounds }: { sandboxes: number; rounds: number }) =>
        plannerHints(sandboxes, rounds),
      ),
  )
  .addCommand(
    new Command('organizations')
      .description('requests with row-level security and without it')
      .option('--requests <n>', 'of each kind', count, 1_000)
      .action(({ requests }: { requests: number }) => organizations(requests)),
  )
  .addCommand(
    new Command('auth')
      .description('requests with authentication and without it')
      .option('--requests <n>', 'of each kind', count, 1_000)
      .action(({ requests }: { requests: number }) => auth(requests)),
  )
  .addCommand(
    new Command('fair-path')
      .description('the cost of fair turns for an organization that is alone, in CPU time')
      .option('--rounds <n>', 'number of rounds', count, 20)
      .option('--seconds <n>', 'seconds of each measure in a round', positive, 0.3)
      .option('--connections <n>', 'concurrent clients', count, 32)
      .action((options: FairPathOptions) => fairPath(options)),
  )
  .addCommand(
    new Command('metrics')
      .description('requests with metrics and without them')
      .option('--requests <n>', 'of each kind', count, 1_000)
      .action(({ requests }: { requests: number }) => metrics(requests)),
  )
  .addCommand(
    new Command('traces')
      .description('requests with traces, sent to a collector, and without them')
      .option('--requests <n>', 'of each kind', count, 1_000)
      .option('--percent <n>', 'of the traces that are sampled', count, 100)
      .action(({ requests, percent }: { requests: number; percent: number }) =>
        traces(requests, percent / 100),
      ),
  )
  .addCommand(
    new Command('budgets')
      .description('the check of budgets in a start, beside many sandboxes of the month')
      .option('--sandboxes <n>', 'number of sandboxes', count, 100_000)
      .option('--rounds <n>', 'number of checks of each budget', count, 20)
      .action(({ sandboxes, rounds }: { sandboxes: number; rounds: number }) =>
        budgetTimes(sandboxes, rounds),
      ),
  )
  .addCommand(
    new Command('status')
      .description('the queries of "sandkeep status" in a large store')
      .option('--sandboxes <n>', 'of the store', count, 100_000)
      .option('--rounds <n>', 'number of rounds', count, 11)
      .action(({ sandboxes, rounds }: { sandboxes: number; rounds: number }) =>
        statusTimes(sandboxes, rounds),
      ),
  )
  .addCommand(
    new Command('start')
      .description(
        'from a request to the first output of a command, beside "docker run", "docker exec" and runc',
      )
      .option('--rounds <n>', 'number of rounds', count, 12)
      .option('--at-once <n,n>', 'numbers of starts at once', counts, [8, 32])
      .option('--prepared <n>', 'networks that wait for sandboxes', natural, 8)
      .option('--pool <n>', 'sandboxes that a pool keeps ready; default: 8, with microvm 1', natural)
      .option('--fill <n>', 'with microvm: then starts as many sandboxes that run at once', count)
      .addOption(runtimeOption('docker, or microvm: the times and sizes of virtual machines alone'))
      .option(...EMULATION)
      .option(...KERNEL)
      .option(...dockerSocketOption())
      .action((options: StartBench, command: Command) => {
        if (options.runtime === 'microvm') {
          refuseFlags(command, ['atOnce', 'prepared', 'dockerSocket'], WITH_MICROVM);
          // The pool of a round needs one. Others would share the processors with what is measured.
          return startMicrovm({ ...options, pool: options.pool ?? 1 });
        }
        refuseFlags(command, ['fill', 'emulation', 'kernel'], WITHOUT_MICROVM);
        return start({ ...options, pool: options.pool ?? 8 });
      }),
  )
  .addCommand(
    new Command('many')
      .description(
        'many small sandboxes with networks on one Docker engine: starts, memory, and lists meanwhile',
      )
      .option('--sandboxes <n>', 'that run at last', count, 1_100)
      .option('--at-once <n>', 'concurrent starts', count, 8)
      .option('--minutes <n>', 'begin no start after so long', positive, 15)
      .option('--image <reference>', 'an image with a shell, pulled when the engine lacks it', 'busybox')
      .option(...dockerSocketOption())
      .action((options: ManyOptions) => many(options)),
  )
  .addCommand(
    new Command('snapshots')
      .description(
        'snapshots and forks of a sandbox, and commits of its container by the Docker engine alone, in turns',
      )
      .option('--rounds <n>', 'number of rounds', count, 5)
      .option('--mib <n>', 'that the sandbox has written', count, 100)
      .option('--copies <n>', 'of each fork, beside as many "docker run"; 0: none', count, 20)
      .option('--prepared <n>', 'networks that wait for sandboxes', natural, 8)
      .option(
        '--cycles <n>',
        'replaces the times: as many creates, snapshots, starts from them, forks and deletes, and what the engine has before and after',
        count,
      )
      .option('--minutes <n>', 'begin no cycle after so long', positive, 60)
      .option('--image <reference>', 'an image with a shell, pulled when the engine lacks it', 'busybox')
      .addOption(runtimeOption('docker, or microvm: those of a virtual machine alone'))
      .option(...EMULATION)
      .option(...KERNEL)
      .option(...dockerSocketOption())
      .action((options: SnapshotsBench, command: Command) => {
        const { cycles, runtime } = options;
        if (runtime === 'microvm') refuseFlags(command, ['prepared', 'image', 'dockerSocket'], WITH_MICROVM);
        else refuseFlags(command, ['emulation', 'kernel'], WITHOUT_MICROVM);
        if (cycles === undefined) {
          refuseFlags(command, ['minutes'], 'without --cycles');
          return runtime === 'microvm' ? snapshotsMicrovm(options) : snapshots(options);
        }
        refuseFlags(command, ['rounds', 'mib', 'copies', 'prepared'], 'with --cycles');
        const bounded = { ...options, cycles };
        return runtime === 'microvm' ? snapshotCyclesMicrovm(bounded) : snapshotCycles(bounded);
      }),
  )
  .addCommand(
    new Command('templates')
      .description(
        'builds of a Dockerfile without the cache and with it, and starts from the result, beside "docker build" and "docker run", in turns',
      )
      .option('--rounds <n>', 'number of rounds', count, 5)
      .option('--mib <n>', 'that a step writes', count, 20)
      .option('--image <reference>', 'an image with a shell that the engine has', 'busybox')
      .option(...dockerSocketOption())
      .action((options: TemplatesOptions) => templates(options)),
  )
  .addCommand(
    new Command('exec')
      .description("commands over the agent channel and by the Docker engine's own exec, side by side")
      .option('--rounds <n>', 'number of rounds', count, 3)
      .option('--runs <n>', 'commands in each round', count, 48)
      .option('--image <reference>', 'an image with a shell, pulled when the engine lacks it', 'busybox')
      .option(...dockerSocketOption())
      .action((options: ExecOptions) => exec(options)),
  )
  .addCommand(
    new Command('neighbours')
      .description(
        'the usual work of one organization beside an idle neighbour, and beside each kind of attack',
      )
      .option('--seconds <n>', 'duration of each measurement', count, 10)
      .option('--image <reference>', 'an image with a shell; without it the runtime is simulated')
      .option('--only <names>', 'only these attacks, separated by commas', words, [])
      .addOption(runtimeOption('docker, or microvm with an image of its own'))
      .option(...EMULATION)
      .option(...KERNEL)
      .option(...dockerSocketOption())
      .action(({ runtime, emulation, kernel, ...options }: NeighboursBench, command: Command) => {
        if (runtime === 'docker') {
          refuseFlags(command, ['emulation', 'kernel'], WITHOUT_MICROVM);
          return neighbours(options);
        }
        refuseFlags(command, ['image', 'dockerSocket'], WITH_MICROVM);
        const microvm = { ...(emulation && { emulation }), ...(kernel !== undefined && { kernel }) };
        return neighbours({ ...options, microvm });
      }),
  )
  .addCommand(
    new Command('previews')
      .description(
        'requests and downloads from a server in a sandbox: straight, through nginx, and through a preview',
      )
      .option('--rounds <n>', 'number of rounds', count, 3)
      .option('--seconds <n>', 'seconds of each measure in a round', positive, 3)
      .option(...dockerSocketOption())
      .action((options: PreviewsOptions) => previews(options)),
  )
  .addCommand(
    new Command('preview-transfers')
      .description(
        'large transfers, idle WebSockets and a long stream through a preview, with the memory of the service',
      )
      .option('--download-mib <n>', 'MiB of the download', count, 4_096)
      .option('--upload-mib <n>', 'MiB of the upload', count, 1_024)
      .option('--sockets <n>', 'WebSockets', count, 1_000)
      .option('--stream-seconds <n>', 'seconds of the stream of events', count, 120)
      .option(...dockerSocketOption())
      .action((options: TransferOptions) => transfers(options)),
  )
  .addCommand(
    new Command('gateway')
      .description(
        'the gateway after a kill, in large transfers and beside many connections, and what it costs',
      )
      .option('--kills <n>', 'kills of the gateway', count, 20)
      .option('--mib <n>', 'MiB of each transfer', count, 1_024)
      .option('--rounds <n>', 'rounds of a sandbox without a gateway', count, 5)
      .option('--starts <n>', 'starts of each kind', count, 9)
      .option('--only <names>', 'only these parts: kills, memory, neighbours, plain, starts', words, [])
      .action((options: GatewayOptions) => gateway(options)),
  )
  .addCommand(
    new Command('network')
      .description(
        'TLS out of a sandbox: direct, spliced and decrypted by the gateway; by HAProxy and mitmproxy',
      )
      .option('--rounds <n>', 'number of rounds', count, 5)
      .option('--seconds <n>', 'duration of each measurement', positive, 2)
      .option('--bandwidth <n>', 'limit of each sandbox in Mbit/s; 0: none', natural, 0)
      .option(...dockerSocketOption())
      .action((options: NetworkOptions) => network(options)),
  )
  .addCommand(
    new Command('console')
      .description('each page of the console in a browser: first visits, and pages opened from another page')
      .option('--scale <n>', 'size of the data set, as without a command', positive, 1)
      .option('--rounds <n>', 'number of rounds', count, 5)
      .option('--store <dir>', 'keeps the loaded data in this directory, and reuses it')
      .option('--browser <path>', 'the program of Chromium', '/usr/bin/chromium')
      .action((options: ConsoleOptions) => consoleTimes(options)),
  )
  .addCommand(
    new Command('kubernetes')
      .description('starts on a cluster, beside those of bare Pods')
      .option('--kubeconfig <file>', OPTIONS.kubeconfig.description, process.env['KUBECONFIG'] ?? '')
      .option('--image <reference>', 'an image with busybox that every node has', 'busybox:local')
      .option('--sandboxes <n>', 'started at once', count, 200)
      .option('--rounds <n>', 'number of rounds', count, 1)
      .option('--singles <n>', 'further starts, one after another', count, 5)
      .action((options: StartsOptions) => kubernetesStarts(options)),
  )
  .addCommand(
    new Command('kubernetes-changes')
      .description('what a change costs while a simulated cluster holds more and more sandboxes')
      .option('--sandboxes <n,n>', 'numbers of running sandboxes', counts, [100, 1_000, 10_000])
      .option('--changes <n>', 'ends of sandboxes, ten a second', count, 100)
      .action((options: ChangesOptions) => kubernetesChanges(options)),
  )
  .parseAsync()
  .catch((error: unknown) => {
    if (!(error instanceof ExplainedError)) throw error;
    console.error(`error: ${error.message}`);
    process.exitCode = 1;
  });

function dockerSocketOption(): [flags: string, description: string, fallback: string] {
  const fallback = process.env[variableOf('dockerSocket')] ?? OPTIONS.dockerSocket.default;
  return [`${flagOf('dockerSocket')} <path>`, OPTIONS.dockerSocket.description, fallback];
}

function positive(text: string): number {
  const value = Number(text);
  if (!(value > 0 && value < Infinity)) throw new InvalidArgumentError('It must be a number above zero.');
  return value;
}

function natural(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError('It must be a whole number.');
  return Number(text);
}

function count(text: string): number {
  const value = natural(text);
  if (value === 0) throw new InvalidArgumentError('It must be a whole number above zero.');
  return value;
}

/** At least one count. */
function counts(text: string): number[] {
  return text.split(',').map(count);
}

/** The list may be empty. */
function sizes(text: string): number[] {
  return text === '' ? [] : counts(text);
}

function words(text: string): string[] {
  return text
    .split(',')
    .map((word) => word.trim())
    .filter(Boolean);
}
