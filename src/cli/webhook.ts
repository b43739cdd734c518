import { Command, Option } from 'commander';
import { validate as isUuid } from 'uuid';
import { operator } from '../audit/events/actor.js';
import type { Config } from '../config/options.js';
import { ApiError } from '../http/errors.js';
import { explainFirst, validatorOf } from '../http/validation.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { describeSource, keySourceOf } from '../secrets/key-file.js';
import { checkKeys, openKnownKeyring } from '../secrets/secrets.js';
import { webhookSettings, type WebhookSettings } from '../settings.js';
import { createWebhook } from '../webhooks/create.js';
import { deleteWebhook } from '../webhooks/delete.js';
import { listDeliveries } from '../webhooks/delivery-queries.js';
import { presentDelivery, presentWebhook } from '../webhooks/present.js';
import { getWebhook, getWebhooks } from '../webhooks/queries.js';
import { redeliver } from '../webhooks/redeliver.js';
import { rotateSecret } from '../webhooks/rotate.js';
import {
  CreateWebhookRequest,
  DELIVERY_STATUSES,
  UpdateWebhookRequest,
  type DeliveryResponse,
  type WebhookFormat,
  type WebhookResponse,
} from '../webhooks/schema.js';
import { sendTest } from '../webhooks/send-test.js';
import { updateWebhook } from '../webhooks/update.js';
import type { WebhookCaller, WebhookContext } from '../webhooks/webhook-context.js';
import { databaseCommand, print, tableCommand, withDatabase, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';
import { explained } from './explained.js';
import { namedOrg } from './named-org.js';
import * as option from './options.js';
import { table } from './table.js';
import { judgeReach, reachOf, type ReachOptions } from './webhook-reach.js';

interface WebhookOptions extends CommonOptions, Pick<Config, 'secretKeys' | 'secretKeysFile'>, ReachOptions {
  org: string;
}

interface CreateOptions extends WebhookOptions {
  type?: string[];
  description?: string;
  format: WebhookFormat;
}

type UpdateOptions = Partial<Omit<CreateOptions, keyof WebhookOptions>> &
  WebhookOptions & { url?: string; status?: string };

const MOST_SHOWN = 100;

export function webhookCommand(): Command {
  return new Command('webhook')
    .description('webhooks: audit events, posted to addresses of an organization')
    .addCommand(createCommand())
    .addCommand(listCommand())
    .addCommand(updateCommand())
    .addCommand(deleteCommand())
    .addCommand(rotateCommand())
    .addCommand(testCommand())
    .addCommand(deliveriesCommand())
    .addCommand(redeliverCommand());
}

function createCommand(): Command {
  return reaching(orgCommand('create'))
    .description('create a webhook; its signing secret is printed once')
    .argument('<url>', 'the address that receives events')
    .addOption(option.webhookTypes())
    .addOption(option.webhookFormat().default('sandkeep'))
    .option('--description <text>', 'its purpose')
    .action(async (url: string, options: CreateOptions) => {
      const { type: event_types = [], description = null, format } = options;
      const request = checked(CreateWebhookRequest, { url, description, event_types, format });
      const made = await operate(options, 'create', async (means, by) => {
        judgeReach(url, options);
        await checkSeal(means, options);
        return createWebhook(means, by, request);
      });
      print(
        options,
        made,
        `${made.secret}\n\nThis is the only time the secret is shown. The id of the webhook is ${made.id}.`,
      );
    });
}

function listCommand(): Command {
  return orgCommand('list', tableCommand)
    .description('list the webhooks of an organization')
    .action(async (options: WebhookOptions) => {
      const rows = await operate(options, 'list', async ({ pool }, { orgId }) => {
        const at = now();
        return (await getWebhooks(pool, orgId, undefined, MOST_SHOWN)).map((row) => presentWebhook(row, at));
      });
      print(options, rows, webhookTable(rows, options));
    });
}

function updateCommand(): Command {
  return reaching(orgCommand('update', tableCommand))
    .description('change the given fields; a webhook that becomes active receives the events that it missed')
    .argument('<id>', 'id of the webhook')
    .option('--url <url>', 'the address that receives events')
    .addOption(option.webhookTypes())
    .addOption(option.webhookFormat())
    .option('--description <text>', 'its purpose')
    .option('--status <status>', 'active or disabled')
    .action(async (id: string, options: UpdateOptions) => {
      const { url, type, description, format, status } = options;
      const request = checked(UpdateWebhookRequest, {
        ...(url === undefined ? {} : { url }),
        ...(type === undefined ? {} : { event_types: type }),
        ...(description === undefined ? {} : { description }),
        ...(format === undefined ? {} : { format }),
        ...(status === undefined ? {} : { status }),
      } as UpdateWebhookRequest);
      if (Object.keys(request).length === 0) {
        throw new ExplainedError(
          'nothing is to be changed: give --url, --type, --format, --description or --status',
        );
      }
      const changed = await operate(options, 'update', (means, by) => {
        if (url !== undefined) judgeReach(url, options);
        return updateWebhook(means, by, named(id), request);
      });
      print(options, changed, webhookTable([changed], options));
    });
}

function deleteCommand(): Command {
  return orgCommand('delete')
    .description('delete a webhook and the log of its deliveries')
    .argument('<id>', 'id of the webhook')
    .action(async (id: string, options: WebhookOptions) => {
      await operate(options, 'delete', (means, by) => deleteWebhook(means, by, named(id)));
      print(options, { id, deleted: true }, `the webhook ${id} is deleted`);
    });
}

function rotateCommand(): Command {
  return orgCommand('rotate-secret')
    .description('give a webhook a new secret, printed once; the previous secret signs as well for a while')
    .argument('<id>', 'id of the webhook')
    .addOption(option.webhookOverlap())
    .action(async (id: string, options: WebhookOptions & { overlapSecs: number }) => {
      const made = await operate(options, 'rotate-secret', async (means, by) => {
        await checkSeal(means, options);
        return rotateSecret(means, by, named(id), { overlap_secs: options.overlapSecs });
      });
      const until = made.previous_secret_until;
      const before =
        until === null ? 'The previous secret no longer signs.' : `The previous secret signs until ${until}.`;
      print(options, made, `${made.secret}\n\nThis is the only time the secret is shown. ${before}`);
    });
}

function testCommand(): Command {
  return reaching(orgCommand('test', tableCommand))
    .description('send a webhook one event of the type webhook_tested from this machine')
    .argument('<id>', 'id of the webhook')
    .action(async (id: string, options: WebhookOptions) => {
      const delivery = await operate(options, 'test', async (means, by) => {
        await checkSeal(means, options);
        return sendTest(means, by, named(id));
      });
      print(options, delivery, deliveryTable([delivery], options));
      if (delivery.status !== 'delivered') process.exitCode = 1;
    });
}

function deliveriesCommand(): Command {
  return orgCommand('deliveries', tableCommand)
    .description(`list the latest ${MOST_SHOWN} deliveries of a webhook, newest first`)
    .argument('<id>', 'id of the webhook')
    .addOption(new Option('--status <status>', 'only those of this status').choices(DELIVERY_STATUSES))
    .action(async (id: string, options: WebhookOptions & { status?: DeliveryResponse['status'] }) => {
      const rows = await operate(options, 'deliveries', async ({ pool }, { orgId }) => {
        if (!(await getWebhook(pool, orgId, named(id)))) throw new ApiError('sandbox_not_found');
        return (await listDeliveries(pool, orgId, id, options.status, undefined, MOST_SHOWN)).map(
          presentDelivery,
        );
      });
      print(options, rows, deliveryTable(rows, options));
    });
}

function redeliverCommand(): Command {
  return orgCommand('redeliver')
    .description('send a delivery again, in any status')
    .argument('<id>', 'id of the webhook')
    .argument('<delivery>', 'id of the delivery')
    .action(async (id: string, delivery: string, options: WebhookOptions) => {
      const due = await operate(options, 'redeliver', (means, by) =>
        redeliver(means, by, named(id), named(delivery)),
      );
      print(options, due, 'it is sent again as soon as a service runs');
    });
}

function orgCommand(name: string, make = databaseCommand): Command {
  const command = make(name).requiredOption('--org <slug>', 'the organization');
  return withConfig(command, ['secretKeys', 'secretKeysFile'], { isCommon: true });
}

/** Adds the options of `serve` by which a command judges addresses. */
function reaching(command: Command): Command {
  return withConfig(command, ['webhookAllow', 'webhookHttp'], {
    unset: 'as at the last start of the service',
  });
}

async function operate<T>(
  options: WebhookOptions,
  command: string,
  work: (means: WebhookContext, by: WebhookCaller) => Promise<T>,
): Promise<T> {
  return withDatabase(options, `webhook ${command}`, async (pool) => {
    const orgId = await namedOrg(pool, options.org);
    const keyring = await openKnownKeyring(pool, keySourceOf(options));
    const means: WebhookContext = { pool, now, keyring, settings: { webhooks: settingsOf(options) } };
    return work(means, { orgId, actor: operator(`webhook ${command}`) }).catch(throwExplained);
  });
}

function settingsOf(options: WebhookOptions): WebhookSettings {
  const { allow, http } = reachOf(options);
  return webhookSettings({ webhookAllow: allow, webhookHttp: http });
}

function checked<T>(schema: Parameters<typeof validatorOf>[0], request: T): T {
  const validate = validatorOf(schema);
  if (!validate(request)) throw new ExplainedError(explainFirst(validate.errors!));
  return request;
}

function throwExplained(error: unknown): never {
  if (error instanceof ApiError && error.status === 404)
    throw new ExplainedError('the organization has no webhook or delivery with this id', { cause: error });
  return explained(error);
}

/** Refuses to seal or open a secret without the keys of the service. */
async function checkSeal({ pool, keyring }: WebhookContext, options: WebhookOptions): Promise<void> {
  await checkKeys(pool, keyring(), describeSource(keySourceOf(options)));
}

function named(id: string): string {
  if (!isUuid(id)) throw new ExplainedError(`"${id}" is not an id`);
  return id;
}

function webhookTable(rows: readonly WebhookResponse[], options: WebhookOptions): string {
  if (rows.length === 0) return 'there are no webhooks';
  return table(
    ['ID', 'STATUS', 'FAILING SINCE', 'URL', 'FORMAT', 'TYPES'],
    rows.map(({ id, status, failing_since, url, format, event_types }) => [
      id,
      status,
      failing_since ?? '',
      url,
      format,
      event_types.length === 0 ? 'all' : event_types.join(', '),
    ]),
    { ...options, optional: ['TYPES', 'FAILING SINCE', 'FORMAT'] },
  );
}

function deliveryTable(rows: readonly DeliveryResponse[], options: WebhookOptions): string {
  if (rows.length === 0) return 'there are no deliveries';
  return table(
    ['ID', 'CREATED', 'EVENT', 'STATUS', 'ATTEMPTS', 'LAST ANSWER'],
    rows.map(({ id, created_at, event_type, status, attempts, results }) => {
      const last = results.at(-1);
      const answer = last === undefined ? '' : (last.error ?? String(last.response_status));
      return [id, created_at, event_type, status, String(attempts), answer];
    }),
    options,
  );
}
