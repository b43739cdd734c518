import { InvalidArgumentError, Option } from 'commander';
import { ADMIN, SCOPES } from '../access/scopes.js';
import { OCSF_VERSION } from '../audit/ocsf/mapping.js';
import { integer, type OptionType } from '../options/types.js';
import * as keyRotation from '../keys/rotate.js';
import { addMillis, now, parseInstant } from '../lib/instant.js';
import { DEFAULT_INVITATION_HOURS, LONGEST_INVITATION_HOURS } from '../members/invite.js';
import { DEFAULT_LINK_MINUTES, LONGEST_LINK_MINUTES } from '../members/link.js';
import * as webhookRequests from '../webhooks/schema.js';
import { addLabel } from './values.js';

/** Arguments of single commands; the options of the service are in config/options.ts. */

export const json = () => new Option('--json', 'print JSON for programs');

export const wide = () => new Option('--wide', 'print the whole table, even wider than the terminal');

export const webhookTypes = () =>
  new Option(
    '--type <type>',
    'send this event type, or with ! in front leave it out; may be repeated; "" for all',
  ).argParser((text: string, before: string[] | undefined) =>
    text === '' ? (before ?? []) : [...(before ?? []), text],
  );

export const webhookFormat = () =>
  new Option(
    '--format <format>',
    `the form of the body: cloudevents is CloudEvents 1.0, ocsf is OCSF ${OCSF_VERSION}`,
  ).choices(webhookRequests.WEBHOOK_FORMATS);

export const webhookOverlap = () =>
  new Option('--overlap-secs <n>', 'how long the previous secrets still sign')
    .default(webhookRequests.DEFAULT_OVERLAP_SECS)
    .argParser(argumentOf(integer('a number of seconds', 0, webhookRequests.LONGEST_OVERLAP_SECS)));

export const keyScopes = () =>
  new Option('--scopes <scopes>', `permissions of the key, separated by commas: ${SCOPES.join(', ')}`)
    .default([ADMIN], ADMIN)
    .argParser((text: string) =>
      text.split(',').map((part) => {
        const scope = SCOPES.find((known) => known === part.trim());
        if (scope === undefined) throw new InvalidArgumentError(`There is no scope "${part.trim()}".`);
        return scope;
      }),
    );

const labelOption = (description = 'only sandboxes with this label; may be repeated, all must match') =>
  new Option('--label <name=value>', description).argParser(addLabel);

export const keyLabel = () => labelOption().default({}, 'all sandboxes');
export const memberLabel = () => labelOption();
export const labels = (description: string) => labelOption(description).default({}, 'none');

export const invitationHours = () =>
  new Option('--hours <n>', 'how long the link works')
    .default(DEFAULT_INVITATION_HOURS)
    .argParser(argumentOf(integer('a number of hours', 1, LONGEST_INVITATION_HOURS)));

export const linkMinutes = () =>
  new Option('--minutes <n>', 'how long the link works')
    .default(DEFAULT_LINK_MINUTES)
    .argParser(argumentOf(integer('a number of minutes', 1, LONGEST_LINK_MINUTES)));

export const keyCidr = () =>
  new Option('--cidr <network>', 'only from this network, such as 10.0.0.0/8; may be repeated')
    .default([], 'from everywhere')
    .argParser((text: string, networks: string[]) => [...networks, text]);

export const keyExpires = () =>
  new Option(
    '--expires <time>',
    'its end: a time from now such as 12h or 90d, or an RFC 3339 date-time such as 2030-01-31T00:00:00Z',
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
  new Option('--overlap-secs <n>', 'how long the previous secret still works')
    .default(keyRotation.DEFAULT_OVERLAP_SECS)
    .argParser(argumentOf(integer('a number of seconds', 0, keyRotation.LONGEST_OVERLAP_SECS)));

export const momentOption = () =>
  new Option(
    '--to-time <time>',
    'the moment of an archived log, an RFC 3339 date-time such as 2030-01-31T00:00:00Z (default: its end)',
  ).argParser((text: string) => {
    const moment = parseInstant(text);
    if (moment !== undefined) return moment;
    throw new InvalidArgumentError('It must be an RFC 3339 date-time such as 2030-01-31T00:00:00Z.');
  });

/** Parses the argument of a flag by the type of an option. */
function argumentOf<T>(type: OptionType<T>): (text: string) => T {
  return (text) => {
    const value = type.parse(text);
    if (value === undefined) throw new InvalidArgumentError(`It must be ${type.form}.`);
    return value;
  };
}
