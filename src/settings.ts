import { join } from 'node:path';
import { DEFAULT_CONFIG, settingsAmong, type Config, type SettingName } from './config/options.js';
import { passkeySettings, type PasskeySettings } from './config/passkey-settings.js';
import { providerSettings, type ProviderSettings } from './config/provider-settings.js';
import { connectionsFor } from './http/connections.js';
import { REFUSAL_GAP_MS } from './http/refusal-delays.js';
import type { SlotLimits } from './fairness/slots.js';
import { descriptorLimit } from './lib/descriptor-limit.js';
import { PACKAGE_ROOT } from './lib/package-root.js';
import type { DestinationPolicy } from './outbound/destination.js';
import { resolveBySystem } from './outbound/resolve.js';
import type { PriceBook } from './prices/price.js';
import type { RegistryReach } from './registry/registry-session.js';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

const FIXED_SETTINGS = {
  /** The built files of the console. */
  consoleDir: join(PACKAGE_ROOT, 'dist', 'console'),
  /** How long a sandbox may take to end by itself when it is stopped. */
  stopGraceMs: 5 * SECOND_MS,
  /** The longest that a request waits for `wait_for`. */
  waitBudgetMs: 2 * MINUTE_MS,
  /** How long a worker without a connection to the database keeps its sandboxes. */
  workerLeaseMs: 10 * SECOND_MS,
  /** How long a start waits for a worker until an audit event says so. */
  waitNoticeMs: MINUTE_MS,
  maxWaiters: 1_000,
  /** Concurrency limits of tests of registry credentials. */
  registryTests: { total: 16, each: 2 },
  /** The time between two refusals of one organization or address that is beyond a limit. */
  refusalGapMs: REFUSAL_GAP_MS,
  /** How long the body of a request may take to arrive, uploads of files aside. */
  bodyTimeoutMs: MINUTE_MS,
  maxLogFollowers: 500,
  /** Connections and requests that are in sandboxes at once. */
  maxVisits: 2_000,
  maxVisitsOfSandbox: 750,
  /** A session that no process has renewed for so long has lost its process. */
  sessionLostMs: MINUTE_MS,
  /** A proxy closes a connection that is silent for a minute. */
  channelPingMs: 20 * SECOND_MS,
  maxEventFollowers: 500,
  /** Messages of MCP in progress. Most wait for a command, and each holds some output in memory. */
  maxMcpCalls: 600,
  maxMcpCallsOfKey: 200,
  /** The interval at which the use of keys is stored. */
  keyUseWriteMs: SECOND_MS,
  /** Each usage report and each export has a connection of the pool. */
  maxUsageStreams: 6,
  maxExports: 4,
  /** How long a report or an export waits for a connection. */
  usagePatienceMs: 10 * SECOND_MS,
  /** How long its reader may read nothing while another waits; shorter than the wait. */
  usageIdleMs: 2 * SECOND_MS,
  /** How long its reader may read nothing while no other waits. */
  usageStallMs: MINUTE_MS,
  usageLimitMs: HOUR_MS,
  /** How long an operation on files waits for a slot. */
  filePatienceMs: 10 * SECOND_MS,
  /** How long its client may send and read nothing while another waits. */
  fileIdleMs: 5 * SECOND_MS,
  /** The longest silence of a stream until it sends a keep-alive. */
  logKeepAliveMs: 15 * SECOND_MS,
};

const FIXED_WEBHOOK_SETTINGS = {
  resolve: resolveBySystem,
  timeoutMs: 10 * SECOND_MS,
  /** How long after that time a claim of a process without an answer is void. */
  claimMarginMs: 20 * SECOND_MS,
  /** The back-off after the first failed attempt; each further one is three times as long. */
  firstRetryMs: 5 * SECOND_MS,
  keepTryingMs: DAY_MS,
  /** How long a webhook may only fail until it is disabled. */
  disableAfterMs: 5 * DAY_MS,
  keepMs: 30 * DAY_MS,
  /** Concurrency limits of one process: webhooks in all, and of one organization. */
  served: { total: 32, each: 8 },
  /** Database connections for deliveries. Starts and stops use the same pool. */
  connections: { total: 8, each: 3 },
  /** How long a webhook is served while another waits. */
  yieldAfterMs: 5 * SECOND_MS,
  /** Concurrency limits of tests over the API. */
  tests: { total: 16, each: 2 },
};

export type WebhookSettings = typeof FIXED_WEBHOOK_SETTINGS & { reach: DestinationPolicy };

export type Settings = typeof FIXED_SETTINGS &
  Pick<Config, SettingName> & {
    /** How long a deleted volume can be restored. */
    volumePurgeAfterMs: number;
    /** The interval between two readings of the size of a volume. */
    volumeSampleMs: number;
    /** How long the row of an ephemeral sandbox stays readable after its end. */
    ephemeralLingerMs: number;
    /** The interval of scheduled backups; 0: none are made. */
    backupEveryMs: number;
    /** Null: usage costs nothing. */
    priceBook: PriceBook | null;
    webhooks: WebhookSettings;
    /** Null: people sign in by links. */
    provider: ProviderSettings | null;
    passkeys: PasskeySettings;
    /** The addresses that registries may have. */
    registryReach: RegistryReach;
    /** The most open connections of the API, in total and of one address. */
    connections: SlotLimits;
  };

/** `priceBook`: the content of the file that the option names. */
export function settingsOf(config: Config, priceBook: PriceBook | null): Settings {
  return {
    ...FIXED_SETTINGS,
    ...settingsAmong(config),
    volumePurgeAfterMs: config.volumePurgeHours * HOUR_MS,
    volumeSampleMs: config.volumeSampleMinutes * MINUTE_MS,
    ephemeralLingerMs: config.ephemeralLingerSecs * SECOND_MS,
    backupEveryMs: config.backupDir === undefined ? 0 : config.backupEveryHours * HOUR_MS,
    priceBook,
    webhooks: webhookSettings(config),
    provider: providerSettings(config),
    passkeys: passkeySettings(config),
    registryReach: registryReach(config),
    connections: connectionSettings(config),
  };
}

function connectionSettings(options: Pick<Config, 'maxConnections' | 'maxConnectionsOfAddress'>): SlotLimits {
  const total = options.maxConnections ?? connectionsFor(descriptorLimit());
  return { total, each: options.maxConnectionsOfAddress ?? Math.ceil(total / 2) };
}

export function webhookSettings(
  options: Partial<Pick<Config, 'webhookAllow' | 'webhookHttp'>>,
): WebhookSettings {
  const { webhookAllow: allow, webhookHttp: http } = { ...DEFAULT_CONFIG, ...options };
  return { ...FIXED_WEBHOOK_SETTINGS, reach: { allow, http } };
}

export function registryReach(
  { registryAllow, registryHttp }: Pick<Config, 'registryAllow' | 'registryHttp'>,
  resolve = resolveBySystem,
): RegistryReach {
  return {
    policy: { allow: [...registryAllow, ...registryHttp], http: false, httpTo: registryHttp },
    resolve,
  };
}

export const DEFAULT_SETTINGS: Settings = settingsOf(DEFAULT_CONFIG, null);
export const DEFAULT_WEBHOOK_SETTINGS = DEFAULT_SETTINGS.webhooks;
