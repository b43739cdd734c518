import { join } from 'node:path';
import { UNIX_PEER } from '../http/client-address.js';
import { isCidr } from '../lib/cidr.js';
import { LOG_FORMATS } from '../lib/log-destination.js';
import { LOG_LEVELS } from '../lib/log.js';
import { ENGINE_OPTIONS, RUNTIME_CHOICES } from '../engines/register.js';
import { SHARED_CPU_MILLIS } from '../engine/shared-cpu.js';
import { EXPORTER_CHOICES, OTLP_PROTOCOLS, SAMPLER_NAMES } from '../telemetry/choices.js';
import { LISTENING_OPTIONS } from './listening-options.js';
import { PREVIEW_OPTIONS } from './preview-options.js';
import { PUBLISHED_PORT_OPTIONS } from './published-port-options.js';
import { SIGN_IN_OPTIONS } from './sign-in-options.js';
import { dataFile, InDataDir, type Options, type Option, type ValuesOf } from '../options/option.js';
import {
  choice,
  httpOrigin,
  httpUrl,
  integer,
  list,
  onOff,
  pairs,
  path,
  ratio,
  text,
  urlPrefix,
} from '../options/types.js';

const ROLES = ['both', 'api', 'worker'] as const;

/** Every option, declared once. Its flag, environment variable and key in the file come from its name: see names.ts. */
export const OPTIONS = {
  config: {
    type: path('<file>'),
    description: 'configuration file, YAML or JSON',
    unset: '<data-dir>/sandkeep.yaml where it exists',
    outsideFile: true,
  },
  dataDir: {
    type: path('<dir>'),
    description: 'directory of the embedded database, of its socket and of the keys',
    default: 'sandkeep-data',
  },
  databaseUrl: {
    type: text('<url>', 'a URL such as postgres://user@host/database'),
    description: 'an external PostgreSQL 15 or later; several hosts name a primary and its standbys',
    unset: 'the embedded one',
    variable: 'DATABASE_URL',
    secret: true,
  },
  eventKeys: {
    type: text('<keys>', 'keys in base64'),
    description:
      'base64 of 32 bytes: the Ed25519 key that signs the event log, then the previous ones; prefer the environment or a file, as "ps" shows flags',
    unset: '--event-keys-file',
    secret: true,
  },
  eventKeysFile: {
    type: path('<file>'),
    description: 'the same keys in a file of mode 0600, created when it is missing',
    default: dataFile('event-keys'),
  },
  ...LISTENING_OPTIONS,
  ...PREVIEW_OPTIONS,
  role: {
    type: choice('<role>', ROLES),
    description:
      'part of the service in this process: api answers requests, worker does the background work and answers only other processes',
    default: 'both',
  },
  otlpEndpoint: {
    type: httpUrl,
    description: 'collector of traces and logs by OTLP over HTTP; /v1/traces and /v1/logs are added to it',
    unset: 'no export',
    variable: 'OTEL_EXPORTER_OTLP_ENDPOINT',
  },
  otlpTracesEndpoint: {
    type: httpUrl,
    description: 'collector of traces, with its whole path',
    unset: 'below --otlp-endpoint',
    variable: 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
  },
  otlpLogsEndpoint: {
    type: httpUrl,
    description: 'collector of logs, with its whole path',
    unset: 'below --otlp-endpoint',
    variable: 'OTEL_EXPORTER_OTLP_LOGS_ENDPOINT',
  },
  otlpProtocol: {
    type: choice('<name>', OTLP_PROTOCOLS),
    description: 'form of the export',
    default: 'http/protobuf',
    variable: 'OTEL_EXPORTER_OTLP_PROTOCOL',
  },
  otlpHeaders: {
    type: pairs,
    description: 'headers of the export, such as authorization=Bearer%20…',
    unset: 'none',
    variable: 'OTEL_EXPORTER_OTLP_HEADERS',
    secret: true,
  },
  tracesExporter: {
    type: choice('<name>', EXPORTER_CHOICES),
    description: 'whether traces are exported where a collector is named',
    default: 'otlp',
    variable: 'OTEL_TRACES_EXPORTER',
  },
  logsExporter: {
    type: choice('<name>', EXPORTER_CHOICES),
    description: 'whether logs are exported where a collector is named',
    default: 'otlp',
    variable: 'OTEL_LOGS_EXPORTER',
  },
  tracesSampler: {
    type: choice('<name>', SAMPLER_NAMES),
    description: 'choice of the traces that are exported',
    default: 'parentbased_always_on',
    variable: 'OTEL_TRACES_SAMPLER',
  },
  tracesSamplerArg: {
    type: ratio,
    description: 'share of the traces, for the samplers whose names end in traceidratio',
    default: 1,
    variable: 'OTEL_TRACES_SAMPLER_ARG',
  },
  tracesFromCallers: {
    type: integer('a number of traces', 0, 1_000_000),
    description:
      'most traces a second that are exported because a caller asks for them, where the sampler does not take all',
    default: 10,
  },
  otelServiceName: {
    type: text('<name>', 'a name'),
    description: 'name of the service in traces and exported logs',
    unset: 'sandkeep',
    variable: 'OTEL_SERVICE_NAME',
  },
  otelResourceAttributes: {
    type: pairs,
    description: 'attributes of every trace and exported log line',
    unset: 'none',
    variable: 'OTEL_RESOURCE_ATTRIBUTES',
  },
  otelSdkDisabled: {
    type: onOff,
    description: 'export neither traces nor logs',
    default: false,
    variable: 'OTEL_SDK_DISABLED',
  },
  advertiseUrl: {
    type: httpOrigin,
    description:
      'URL at which the other processes on the database reach this one, to forward requests about its sandboxes',
    unset: 'the port on the loopback address, for processes on the same machine',
  },
  forwardCa: {
    type: path('<file>'),
    description:
      'PEM file of the authorities that other processes with an https URL have their certificates from',
    unset: 'the well-known authorities',
  },
  runtime: {
    type: choice('<name>', RUNTIME_CHOICES),
    description:
      'runtime of the sandboxes; auto takes the runtime of the previous start, else docker when its engine answers, else simulated',
    default: 'auto',
  },
  ...ENGINE_OPTIONS,
  ...PUBLISHED_PORT_OPTIONS,
  volumesDir: {
    type: path('<dir>'),
    description: 'directory of the data of volumes; the same file system for every host that serves them',
    default: dataFile('volumes'),
  },
  secretKeys: {
    type: text('<keys>', 'keys in base64'),
    description:
      'base64 of 32 bytes each: the first seals secrets, all open them; prefer the environment or a file, as "ps" shows flags',
    unset: '--secret-keys-file',
    secret: true,
  },
  secretKeysFile: {
    type: path('<file>'),
    description: 'the same keys in a file of mode 0600, created when it is missing',
    default: dataFile('secret-keys'),
  },
  capacityVcpus: {
    type: integer('a number of vCPUs', 1, 1_000_000),
    description: 'vCPUs of all running sandboxes together',
    unset: 'eight for each CPU of the machine',
  },
  capacityMemoryMib: {
    type: integer('a number of MiB', 1, 999_999_999),
    description: 'memory of all running sandboxes together, in MiB',
    unset: 'the memory of the machine',
  },
  capacityDiskMib: {
    type: integer('a number of MiB', 0, 999_999_999),
    description: 'sized disks of all sandboxes together, stopped ones included, in MiB',
    unset: 'not counted',
  },
  defaultDiskMib: {
    type: integer('a number of MiB', 0, 999_999_999),
    description:
      'disk of a sandbox that asks for no size, where the engine can hold it to one, in MiB; 0: no bound',
    default: 20_480,
  },
  sandboxBandwidthMbits: {
    type: integer('a number of Mbit/s', 0, 100_000),
    description:
      'bandwidth of the network of a sandbox in each direction, in Mbit/s, from its next start on; 0: no limit',
    default: 250,
  },
  sharedCpuMillis: {
    type: integer('thousandths of a CPU', 0, SHARED_CPU_MILLIS.most),
    description:
      'CPU of a sandbox with vcpus 0, which takes no vCPU of the capacity, in thousandths; 0: such sandboxes are refused',
    default: SHARED_CPU_MILLIS.default,
  },
  diskReserveMib: {
    type: integer('a number of MiB', 0, 999_999_999),
    description:
      'space that uploads and sandboxes leave free on each disk, for the database, in MiB; 0: none',
    unset: '1 GiB, or 2 % of a larger disk; at most 10 % of a smaller one',
  },
  volumePurgeHours: {
    type: integer('a number of hours', 0, 24 * 365),
    description: 'how long a deleted volume can be restored, in hours',
    default: 24,
  },
  volumeSampleMinutes: {
    type: integer('a number of minutes', 1, 1440),
    description: 'interval between two readings of the size of a volume, in minutes',
    default: 60,
  },
  ephemeralLingerSecs: {
    type: integer('a number of seconds', 0, 86_400),
    description: 'how long an ephemeral sandbox stays readable after its end, in seconds',
    default: 15,
  },
  rateLimit: {
    type: integer('a number of units', 0, 1_000_000),
    description:
      'units a second of one key, on average over ten seconds; a request costs one, and one more for each 16 KiB; 0: no limit',
    default: 1_000,
    setting: true,
  },
  failedAuthLimit: {
    type: integer('a number of requests', 0, 1_000_000),
    description: 'requests a minute of one address without a valid key; 0: no limit',
    default: 300,
    setting: true,
  },
  maxConnections: {
    type: integer('a number of connections', 1, 1_000_000),
    description: 'most open connections of the API',
    unset: 'half of the descriptors that the process may open beyond a reserve, at most 10,000',
  },
  maxConnectionsOfAddress: {
    type: integer('a number of connections', 1, 1_000_000),
    description:
      'most open connections of one address, or IPv6 network of 64 bits; of a client of --trusted-proxies: most requests in progress',
    unset: 'half of --max-connections',
  },
  basePath: {
    type: urlPrefix,
    description:
      'path prefix of the URLs of API and console behind a reverse proxy, which may remove it from requests or not',
    unset: 'none',
    setting: true,
  },
  trustedProxies: {
    type: list('<cidrs>', 'addresses and CIDR blocks separated by commas, and "unix"', (block) =>
      block === UNIX_PEER || isCidr(block) ? block : undefined,
    ),
    description:
      'reverse proxies whose X-Forwarded-For, -Proto and -Host are believed; unix: every client of the Unix socket',
    default: [],
    setting: true,
  },
  ...SIGN_IN_OPTIONS,
  console: {
    type: onOff,
    description: 'serve the console at /console, and send browsers from / to it',
    default: true,
    setting: true,
  },
  terminalOrigins: {
    type: list('<origins>', 'origins such as https://console.example.com, separated by commas', (text) =>
      URL.canParse(text) && new URL(text).origin === text ? text : undefined,
    ),
    description: 'pages that may open terminals, beside those of the host of the service',
    default: [],
    setting: true,
  },
  priceBook: {
    type: path('<file>'),
    description: 'prices of usage, as JSON; see docs/usage.md',
    unset: 'usage costs nothing',
  },
  budgetsPerOrg: {
    type: integer('a number of budgets', 0, 100),
    description: 'most budgets of an organization; a start reads those that can refuse it',
    default: 20,
    setting: true,
  },
  webhookAllow: {
    type: list('<cidrs>', 'addresses and CIDR blocks, separated by commas', (block) =>
      isCidr(block) ? block : undefined,
    ),
    description: 'networks that are not public and that webhooks may reach, such as 10.1.0.0/16',
    default: [],
  },
  webhookHttp: {
    type: onOff,
    description: 'webhooks may use http, unencrypted, as well as https',
    default: false,
  },
  registryAllow: {
    type: list('<cidrs>', 'addresses and CIDR blocks, separated by commas', (block) =>
      isCidr(block) ? block : undefined,
    ),
    description: 'networks that are not public and from whose registries images may be pulled, by https',
    default: [],
  },
  registryHttp: {
    type: list('<cidrs>', 'addresses and CIDR blocks, separated by commas', (block) =>
      isCidr(block) ? block : undefined,
    ),
    description: 'networks whose registries are asked by http, unencrypted, instead of https',
    default: [],
  },
  imageMaxMib: {
    type: integer('a number of MiB', 1, 999_999_999),
    description: 'largest image that is pulled, uncompressed, in MiB',
    default: 8_192,
  },
  orgImagesMaxMib: {
    type: integer('a number of MiB', 1, 999_999_999),
    description:
      'pulled images that the sandboxes and snapshots of an organization hold on an engine, in MiB',
    unset: "a quarter of the engine's disk",
  },
  backupDir: {
    type: path('<dir>'),
    description: 'directory of scheduled backups, on another disk than the data; see docs/backups.md',
    unset: 'no scheduled backups',
  },
  backupEveryHours: {
    type: integer('a number of hours', 1, 24 * 365),
    description: 'interval of scheduled backups, and of base copies in --wal-archive-dir, in hours',
    default: 24,
  },
  backupKeep: {
    type: integer('a number of backups', 1, 10_000),
    description:
      'scheduled backups, and base copies, that stay; older ones are deleted after the next good one',
    default: 7,
  },
  backupEncryptTo: {
    type: list('<keys>', 'public keys of age such as age1…, separated by commas', (key) =>
      key.startsWith('age1') ? key : undefined,
    ),
    description: 'public keys of age to which scheduled backups are encrypted',
    default: [],
    unset: 'not encrypted',
  },
  walArchiveDir: {
    type: path('<dir>'),
    description:
      'directory in which the embedded database archives its log and base copies, for a restore to any moment; see docs/backups.md',
    unset: 'no archive',
  },
  logLevel: {
    type: choice('<level>', LOG_LEVELS),
    description: 'least severe log line, on standard error',
    default: 'info',
  },
  logFormat: {
    type: choice('<format>', LOG_FORMATS),
    description: 'JSON lines, or text for people; auto: text where standard error is a terminal',
    default: 'auto',
  },
} as const satisfies Options;

export type OptionName = keyof typeof OPTIONS;
export const OPTION_NAMES = Object.keys(OPTIONS) as OptionName[];

type Declared = typeof OPTIONS;
export type Config = ValuesOf<Declared>;

export type SettingName = {
  [K in OptionName]: Declared[K] extends { setting: true } ? K : never;
}[OptionName];

/** The default of an option. Undefined: the option has no value. */
export function defaultOf(name: OptionName, dataDir: string): unknown {
  const { default: value } = OPTIONS[name] as Option;
  return value instanceof InDataDir ? join(dataDir, value.name) : value;
}

export const DEFAULT_CONFIG = Object.fromEntries(
  OPTION_NAMES.map((name) => [name, defaultOf(name, OPTIONS.dataDir.default)]),
) as unknown as Config;

export function settingsAmong(config: Config): Pick<Config, SettingName> {
  const names = OPTION_NAMES.filter((name) => (OPTIONS[name] as Option).setting);
  return Object.fromEntries(names.map((name) => [name, config[name]])) as Pick<Config, SettingName>;
}
