import { InvalidArgumentError, Option } from 'commander';
import { ADMIN, SCOPES } from '../access/scopes.js';
import * as keyRotation from '../keys/rotate.js';
import { isNetwork } from '../lib/cidr.js';
import { addMillis, now, parseInstant } from '../lib/instant.js';
import { LOG_LEVELS } from '../lib/log.js';
import { GUARDED_GROUPS, type GuardedGroup } from '../runtimes/docker/network/compile-policy.js';
import { RUNTIME_CHOICES } from '../runtimes/runtime.js';
import * as webhookRequests from '../webhooks/schema.js';

/** Every option, declared once: its help, its environment variable and its default come from here. */

export const dataDir = () =>
  new Option('--data-dir <dir>', 'where the embedded database and its socket are')
    .env('SANDKEEP_DATA_DIR')
    .default('sandkeep-data');

export const volumesDir = () =>
  new Option(
    '--volumes-dir <dir>',
    'where the data of volumes is; the same file system for every host that serves them (default: <data-dir>/volumes)',
  ).env('SANDKEEP_VOLUMES_DIR');

export const databaseUrl = () =>
  new Option('--database-url <url>', 'an external PostgreSQL 15 or later, in place of the embedded one').env(
    'DATABASE_URL',
  );

export const json = () => new Option('--json', 'print JSON for programs');

export const wide = () =>
  new Option('--wide', 'print the table in full, also where it is wider than the terminal');

export const host = () =>
  new Option('--host <host>', 'address to listen on').env('SANDKEEP_HOST').default('127.0.0.1');

export const port = () =>
  new Option('--port <n>', 'port to listen on; 0 takes a free one')
    .env('SANDKEEP_PORT')
    .default(8080)
    .argParser(integer('a port', 0, 65_535));

export const runtime = () =>
  new Option(
    '--runtime <name>',
    'what runs sandboxes; auto takes what the installation was served with before, else docker when it answers, else simulated',
  )
    .env('SANDKEEP_RUNTIME')
    .choices(RUNTIME_CHOICES)
    .default('auto');

export const changeRuntime = () =>
  new Option(
    '--change-runtime',
    'serve the runtime that --runtime names although there are sandboxes of another one; they stay as they are until theirs is served again',
  );

export const dockerSocket = () =>
  new Option('--docker-socket <path>', 'socket of the Docker Engine API')
    .env('SANDKEEP_DOCKER_SOCKET')
    .default('/var/run/docker.sock');

export const dockerNetwork = () =>
  new Option(
    '--docker-network <name>',
    "Docker bridge network that sandboxes are on (default: one of the service's own); none: no sandbox has a network",
  ).env('SANDKEEP_DOCKER_NETWORK');

export const dockerRuntime = () =>
  new Option(
    '--docker-runtime <name>',
    "what the Docker engine runs containers with, such as runsc (default: the engine's own)",
  ).env('SANDKEEP_DOCKER_RUNTIME');

export const dockerAllow = () =>
  new Option(
    '--docker-allow <groups>',
    `what network policies may open of the machine's surroundings: ${GUARDED_GROUPS.join(', ')}, or both (default: neither)`,
  )
    .env('SANDKEEP_DOCKER_ALLOW')
    .argParser(guardedGroups);

export const volumePurgeHours = () =>
  new Option('--volume-purge-hours <n>', 'how long a deleted volume can be restored')
    .env('SANDKEEP_VOLUME_PURGE_HOURS')
    .default(24)
    .argParser(integer('a number of hours', 0, 24 * 365));

export const volumeSampleMinutes = () =>
  new Option('--volume-sample-minutes <n>', 'how often the size of each volume is read, for usage')
    .env('SANDKEEP_VOLUME_SAMPLE_MINUTES')
    .default(60)
    .argParser(integer('a number of minutes', 1, 1440));

export const ephemeralLingerSecs = () =>
  new Option('--ephemeral-linger-secs <n>', 'how long an ephemeral sandbox stays readable after its end')
    .env('SANDKEEP_EPHEMERAL_LINGER_SECS')
    .default(15)
    .argParser(integer('a number of seconds', 0, 86_400));

export const rateLimit = () =>
  new Option('--rate-limit <n>', 'requests a second that a key may make, on average of ten seconds; 0: any')
    .env('SANDKEEP_RATE_LIMIT')
    .default(1_000)
    .argParser(integer('a number of requests', 0, 1_000_000));

export const failedAuthLimit = () =>
  new Option(
    '--failed-auth-limit <n>',
    'requests a minute that an address may make without a good key; 0: any',
  )
    .env('SANDKEEP_FAILED_AUTH_LIMIT')
    .default(300)
    .argParser(integer('a number of requests', 0, 1_000_000));

export const priceBook = () =>
  new Option('--price-book <file>', 'what usage costs, as JSON; see docs/usage.md').env(
    'SANDKEEP_PRICE_BOOK',
  );

export const secretKeys = () =>
  new Option(
    '--secret-keys <keys>',
    'base64 of 32 bytes each, the first seals secrets and all open them; better given by the environment, where "ps" does not show it',
  ).env('SANDKEEP_SECRET_KEYS');

export const secretKeysFile = () =>
  new Option(
    '--secret-keys-file <file>',
    'the same in a file of mode 0600, made when missing (default: "secret-keys" in the data directory)',
  ).env('SANDKEEP_SECRET_KEYS_FILE');

export const eventKeys = () =>
  new Option(
    '--event-keys <keys>',
    'base64 of 32 bytes: the Ed25519 key that signs the event log, then those before it; better given by the environment',
  ).env('SANDKEEP_EVENT_KEYS');

export const eventKeysFile = () =>
  new Option(
    '--event-keys-file <file>',
    'the same in a file of mode 0600, made when missing (default: "event-keys" in the data directory)',
  ).env('SANDKEEP_EVENT_KEYS_FILE');

export const capacityVcpus = () =>
  new Option(
    '--capacity-vcpus <n>',
    'vCPUs of all running sandboxes together (default: four for each CPU of the machine)',
  )
    .env('SANDKEEP_CAPACITY_VCPUS')
    .argParser(integer('a number of vCPUs', 1, 1_000_000));

export const capacityMemory = () =>
  new Option(
    '--capacity-memory-mib <n>',
    'memory of all running sandboxes together (default: that of the machine)',
  )
    .env('SANDKEEP_CAPACITY_MEMORY_MIB')
    .argParser(integer('a number of MiB', 1, 999_999_999));

export const capacityDisk = () =>
  new Option(
    '--capacity-disk-mib <n>',
    'sized disks of all sandboxes together, of stopped ones too (default: not counted)',
  )
    .env('SANDKEEP_CAPACITY_DISK_MIB')
    .argParser(integer('a number of MiB', 0, 999_999_999));

export const simulatedStartMs = () =>
  new Option('--simulated-start-ms <n>', 'how long a start takes in the simulated runtime')
    .env('SANDKEEP_SIMULATED_START_MS')
    .default(0)
    .argParser(integer('a number of milliseconds', 0, 3_600_000));

export const simulatedStopMs = () =>
  new Option('--simulated-stop-ms <n>', 'how long a stop takes in the simulated runtime')
    .env('SANDKEEP_SIMULATED_STOP_MS')
    .default(0)
    .argParser(integer('a number of milliseconds', 0, 3_600_000));

export const simulatedFailures = () =>
  new Option('--simulated-failures <percent>', 'how many starts fail in the simulated runtime')
    .env('SANDKEEP_SIMULATED_FAILURES')
    .default(0)
    .argParser(integer('a percentage', 0, 100));

/** `fallback`: the default that the help names. */
export const webhookAllow = (fallback: string) =>
  new Option(
    '--webhook-allow <cidrs>',
    `networks that are not public and that webhooks may be sent to, such as 10.1.0.0/16, separated by commas (default: ${fallback})`,
  )
    .env('SANDKEEP_WEBHOOK_ALLOW')
    .argParser(networks);

export const webhookHttp = (fallback: string) =>
  new Option('--webhook-http', `webhooks may be sent by http, in clear, too (default: ${fallback})`).env(
    'SANDKEEP_WEBHOOK_HTTP',
  );

export const webhookTypes = () =>
  new Option(
    '--type <type>',
    'send this event type, or with ! in front leave it out; may be repeated; "" for all',
  ).argParser((text: string, before: string[] | undefined) =>
    text === '' ? (before ?? []) : [...(before ?? []), text],
  );

export const webhookOverlap = () =>
  new Option('--overlap-secs <n>', 'how long the secret before, and those that sign beside it, go on')
    .default(webhookRequests.DEFAULT_OVERLAP_SECS)
    .argParser(integer('a number of seconds', 0, webhookRequests.LONGEST_OVERLAP_SECS));

export const logLevel = () =>
  new Option('--log-level <level>', 'least severe log line, on standard error')
    .env('SANDKEEP_LOG_LEVEL')
    .choices(LOG_LEVELS)
    .default('info');

export const keyScopes = () =>
  new Option('--scopes <scopes>', `what the key may do, separated by commas: ${SCOPES.join(', ')}`)
    .default([ADMIN], ADMIN)
    .argParser((text: string) =>
      text.split(',').map((part) => {
        const scope = SCOPES.find((known) => known === part.trim());
        if (scope === undefined) throw new InvalidArgumentError(`There is no scope "${part.trim()}".`);
        return scope;
      }),
    );

export const keyLabel = () =>
  new Option('--label <name=value>', 'only sandboxes with this label; may be repeated, all must match')
    .default({}, 'all sandboxes')
    .argParser((text: string, labels: Record<string, string>) => {
      const at = text.indexOf('=');
      if (at < 1) throw new InvalidArgumentError('It must be like team=ml.');
      return { ...labels, [text.slice(0, at)]: text.slice(at + 1) };
    });

export const keyCidr = () =>
  new Option('--cidr <network>', 'only from this network, such as 10.0.0.0/8; may be repeated')
    .default([], 'from everywhere')
    .argParser((text: string, networks: string[]) => [...networks, text]);

export const keyExpires = () =>
  new Option(
    '--expires <time>',
    'until when it works: a time from now such as 12h or 90d, or an RFC 3339 date-time such as 2030-01-31T00:00:00Z',
  ).argParser((text: string) => {
    const match = /^(\d{1,5})([smhd])$/.exec(text);
    if (!match) {
      if (parseInstant(text) !== undefined) return text;
      throw new InvalidArgumentError(
        'It takes a time from now such as 30m, 12h or 90d, or an RFC 3339 date-time such as 2030-01-31T00:00:00Z.',
      );
    }
    const seconds = { s: 1, m: 60, h: 3600, d: 86_400 }[match[2] as 's' | 'm' | 'h' | 'd'];
    return addMillis(now(), Number(match[1]) * seconds * 1000);
  });

export const keyOverlap = () =>
  new Option('--overlap-secs <n>', 'how long what the key was until now still works')
    .default(keyRotation.DEFAULT_OVERLAP_SECS)
    .argParser(integer('a number of seconds', 0, keyRotation.LONGEST_OVERLAP_SECS));

function integer(what: string, min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
    if (!(value >= min && value <= max))
      throw new InvalidArgumentError(`It must be ${what} from ${min} to ${max}.`);
    return value;
  };
}

/** Between commas; nothing, as a variable often holds, is none. */
function words(text: string): string[] {
  return text.trim() === '' ? [] : text.split(',').map((word) => word.trim());
}

function networks(text: string): string[] {
  return words(text).map((block) => {
    if (!isNetwork(block)) {
      throw new InvalidArgumentError('It takes addresses and CIDR blocks, separated by commas.');
    }
    return block;
  });
}

function guardedGroups(text: string): GuardedGroup[] {
  return words(text).map((word) => {
    const group = GUARDED_GROUPS.find((known) => known === word);
    if (group === undefined)
      throw new InvalidArgumentError(`It takes ${GUARDED_GROUPS.join(' and ')}, separated by a comma.`);
    return group;
  });
}
