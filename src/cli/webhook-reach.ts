import { isIP } from 'node:net';
import type { Config } from '../config/options.js';
import { ExplainedError } from '../lib/explained-error.js';
import { hostOf, isAllowedAddress, type DestinationPolicy } from '../outbound/destination.js';
import { readDestinationPolicy } from '../webhooks/destination-policy.js';

/** Undefined without a value: the reach of the service applies. */
export interface ReachOptions extends Pick<Config, 'dataDir'> {
  webhookAllow: Config['webhookAllow'] | undefined;
  webhookHttp: Config['webhookHttp'] | undefined;
}

/** The reach that the command gives, else the reach of the last service on this data directory. */
export function reachOf({ dataDir, webhookAllow, webhookHttp }: ReachOptions): DestinationPolicy {
  const served = readDestinationPolicy(dataDir);
  return {
    allow: webhookAllow ?? served?.allow ?? [],
    http: webhookHttp ?? served?.http ?? false,
  };
}

/**
 * Throws ExplainedError with the flag of "serve" that an address lacks. Warns on standard error where only the command
 * allows the address.
 */
export function judgeReach(url: string, options: ReachOptions): void {
  const lack = lackOf(url, reachOf(options));
  if (lack) {
    throw new ExplainedError(
      `${lack.why}: start "sandkeep serve" with ${lack.flag}, and pass it to this command where the service has another --data-dir`,
    );
  }
  const served = readDestinationPolicy(options.dataDir);
  const unserved = served && lackOf(url, served);
  if (!unserved) return;
  process.stderr.write(
    `sandkeep: the service was last started without ${unserved.flag}: it sends nothing to ${url} until it is\n`,
  );
}

/** The check of the API refuses a URL that cannot be parsed. */
function lackOf(text: string, reach: DestinationPolicy): { why: string; flag: string } | undefined {
  if (!URL.canParse(text)) return undefined;
  const url = new URL(text);
  if (url.protocol === 'http:' && !reach.http) {
    return { why: 'url must begin with https://', flag: '--webhook-http' };
  }
  const host = hostOf(url);
  if (isIP(host) === 0 || isAllowedAddress(host, reach)) return undefined;
  return { why: `${host} is not a public address`, flag: `--webhook-allow ${host}` };
}
