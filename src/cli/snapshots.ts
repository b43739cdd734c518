import { Command } from 'commander';
import { ExplainedError } from '../lib/explained-error.js';
import type { Page } from '../lib/page.js';
import { sleep } from '../lib/sleep.js';
import type { SnapshotOperation, SnapshotResponse } from '../snapshots/schema.js';
import { readClient, sendForJson, withClientOptions, type ClientOptions } from './api-client.js';
import { byteText } from './backup-progress.js';
import { print } from './command.js';
import { common, OperatorCommand } from './operator-command.js';
import { json, labels, wide } from './options.js';
import { table } from './table.js';

interface SnapshotOptions extends ClientOptions {
  json?: true;
  wide?: true;
}

interface LabelOptions extends SnapshotOptions {
  label: Record<string, string>;
}

type Client = ReturnType<typeof readClient>;

const PAGE = 100;
const POLL_MS = 250;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const REFERENCE = 'name or id of the snapshot';

/** A client of the API: it needs no access to the data directory. */
export function snapshotsCommand(env: NodeJS.ProcessEnv): Command {
  return new Command('snapshots')
    .description('snapshots of the disks of sandboxes, as a client of the API')
    .addCommand(listCommand(env))
    .addCommand(showCommand(env))
    .addCommand(createCommand(env))
    .addCommand(deleteCommand(env))
    .addCommand(restoreCommand(env))
    .addCommand(exportCommand(env))
    .addCommand(importCommand(env));
}

function snapshotCommand(name: string): Command {
  return withClientOptions(new OperatorCommand(name)).addOption(common(json()));
}

function listCommand(env: NodeJS.ProcessEnv): Command {
  return snapshotCommand('list')
    .addOption(common(wide()))
    .description('list the snapshots of the organization of the key, the newest first')
    .addOption(labels('only snapshots with this label; may be repeated, all must match'))
    .option('--deleted', 'also those that are deleted and can be restored')
    .action(async ({ label, deleted, ...options }: LabelOptions & { deleted?: true }) => {
      const client = readClient(options, env);
      const filters = new URLSearchParams({ limit: String(PAGE) });
      if (Object.keys(label).length > 0) filters.set('labels', JSON.stringify(label));
      if (deleted) filters.set('include', 'deleted');
      const found: SnapshotResponse[] = [];
      for (let cursor: string | null = ''; cursor !== null;) {
        if (cursor !== '') filters.set('cursor', cursor);
        const page: Page<SnapshotResponse> = await sendForJson(client, `/v1/snapshots?${filters.toString()}`);
        found.push(...page.data);
        cursor = page.next_cursor;
      }
      print(options, found, found.length === 0 ? 'no snapshots' : snapshotTable(found, options));
    });
}

function showCommand(env: NodeJS.ProcessEnv): Command {
  return snapshotCommand('show')
    .addOption(common(wide()))
    .description('show a snapshot')
    .argument('<snapshot>', REFERENCE)
    .action(async (reference: string, options: SnapshotOptions) => {
      const found = await sendForJson<SnapshotResponse>(readClient(options, env), pathOf(reference));
      print(options, found, snapshotTable([found], options));
    });
}

function createCommand(env: NodeJS.ProcessEnv): Command {
  return snapshotCommand('create')
    .addOption(common(wide()))
    .description('make a snapshot of a sandbox that is stopped or runs, and wait until it is ready')
    .argument('<name>', 'name of the snapshot')
    .requiredOption('--sandbox <sandbox>', 'name or id of the sandbox')
    .addOption(labels('a label of the snapshot; may be repeated'))
    .option('--force', 'replace the snapshot that has the name')
    .option('--integrity', 'record the digest of the content')
    .action(async (name: string, { sandbox, label, force, integrity, ...options }: CreateOptions) => {
      const client = readClient(options, env);
      const body = {
        kind: 'disk',
        sandbox_id: await sandboxIdOf(client, sandbox),
        name,
        labels: label,
        force: force === true,
        record_integrity: integrity === true,
      };
      const begun = await sendForJson<SnapshotOperation>(client, '/v1/snapshots', { method: 'POST', body });
      const made = await untilMade(client, begun);
      print(options, made, snapshotTable([made], options));
    });
}

interface CreateOptions extends LabelOptions {
  sandbox: string;
  force?: true;
  integrity?: true;
}

function deleteCommand(env: NodeJS.ProcessEnv): Command {
  return snapshotCommand('delete')
    .description(
      'delete a snapshot; it can be restored for a time, and sandboxes that were made from it stay',
    )
    .argument('<snapshot>', REFERENCE)
    .action(async (reference: string, options: SnapshotOptions) => {
      const client = readClient(options, env);
      const answer = await sendForJson<{ message: string }>(client, pathOf(reference), { method: 'DELETE' });
      print(options, answer, answer.message);
    });
}

function restoreCommand(env: NodeJS.ProcessEnv): Command {
  return snapshotCommand('restore')
    .addOption(common(wide()))
    .description('restore a deleted snapshot; "list --deleted" has its id')
    .argument('<id>', 'id of the snapshot')
    .action(async (id: string, options: SnapshotOptions) => {
      const path = `/v1/snapshots/${encodeURIComponent(id)}/restore`;
      const restored = await sendForJson<SnapshotResponse>(readClient(options, env), path, {
        method: 'POST',
      });
      print(options, restored, snapshotTable([restored], options));
    });
}

function exportCommand(env: NodeJS.ProcessEnv): Command {
  return snapshotCommand('export')
    .description('write a snapshot to a file in the OCI image layout, which "docker load" takes as well')
    .argument('<snapshot>', REFERENCE)
    .argument('<file>', 'the file to write; "-": standard output')
    .option('--force', 'replace the file')
    .action(
      async (reference: string, file: string, { force, ...options }: SnapshotOptions & { force?: true }) => {
        if (file === '-' && options.json) {
          throw new ExplainedError(
            'the archive goes to the standard output: leave --json out, or name a file',
          );
        }
        const { download } = await import('./snapshot-archives.js');
        const client = readClient(options, env);
        const made = await download(client, `${pathOf(reference)}/export`, file, { replace: force === true });
        if (file === '-') return;
        const text = `${file} has ${byteText(made.bytes)}, and the image ${made.digest}`;
        print(options, { file, ...made }, text);
      },
    );
}

function importCommand(env: NodeJS.ProcessEnv): Command {
  return snapshotCommand('import')
    .addOption(common(wide()))
    .description('make a snapshot of an archive: an OCI image layout, or a file of "docker save"')
    .argument('<file>', 'the archive; "-": standard input')
    .requiredOption('--name <name>', 'name of the snapshot')
    .addOption(labels('a label of the snapshot; may be repeated'))
    .action(async (file: string, { name, label, ...options }: LabelOptions & { name: string }) => {
      const { upload } = await import('./snapshot-archives.js');
      const query = new URLSearchParams({ name, labels: JSON.stringify(label) });
      const client = readClient(options, env);
      const made = await upload<SnapshotResponse>(client, `/v1/snapshots/import?${query.toString()}`, file);
      print(options, made, snapshotTable([made], options));
    });
}

async function sandboxIdOf(client: Client, sandbox: string): Promise<string> {
  if (UUID.test(sandbox)) return sandbox;
  const path = `/v1/sandboxes/by-name/${encodeURIComponent(sandbox)}`;
  return (await sendForJson<{ id: string }>(client, path)).id;
}

/** Throws ExplainedError with the reason of a failure. */
async function untilMade(client: Client, { id }: SnapshotOperation): Promise<SnapshotResponse> {
  for (;;) {
    const { status, result, error } = await sendForJson<SnapshotOperation>(
      client,
      `/v1/snapshot-operations/${id}`,
    );
    if (result !== null) return result;
    if (status === 'failed') throw new ExplainedError(error?.message ?? 'the snapshot could not be made');
    await sleep(POLL_MS);
  }
}

function pathOf(reference: string): string {
  const part = encodeURIComponent(reference);
  return `/v1/snapshots/${UUID.test(reference) ? part : `by-name/${part}`}`;
}

function snapshotTable(snapshots: readonly SnapshotResponse[], options: SnapshotOptions): string {
  const rows = snapshots.map((snapshot) => [
    snapshot.id,
    snapshot.name,
    snapshot.status,
    byteText(snapshot.size_bytes),
    snapshot.manifest.source_sandbox ?? 'imported',
    snapshot.manifest.image.ref,
    snapshot.created_at,
    snapshot.purge_at ?? '',
  ]);
  const head = ['SNAPSHOT', 'NAME', 'STATUS', 'SIZE', 'SANDBOX', 'IMAGE', 'CREATED', 'PURGE'];
  return table(head, rows, { ...options, optional: ['PURGE', 'IMAGE'] });
}
