import { SingleBar } from 'cli-progress';
import { Option, type Command } from 'commander';
import { createReadStream } from 'node:fs';
import { counted } from '../lib/counted.js';
import type { PublicKey } from '../audit/events/event-keys.js';
import type { LogPosition } from '../audit/events/hash-chain.js';
import { readSeenHeads, seenHeadsFile } from '../audit/log/seen-heads.js';
import { keyTextsIn } from '../audit/log/signed-text.js';
import {
  describeEventKeys,
  eventKeySourceOf,
  findEventKeys,
  parsePublicKey,
} from '../audit/log/signing-key.js';
import type { Trust } from '../audit/verify/node-crypto.js';
import type { KnownPosition, ReferenceLog } from '../audit/verify/reference-logs.js';
import type { FaultKind, Verdict } from '../audit/verify/verification-fault.js';
import type { FilePart } from '../audit/verify/file-verifier.js';
import { recordVerifications } from '../audit/verify/verification-queries.js';
import { verifyStore } from '../audit/verify/verify-store.js';
import { compareCatalogues, readCatalogue, wantedCatalogue, type Difference } from '../db/catalogue.js';
import { requireInstallation } from '../db/open.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { sameBytes } from '../lib/bytes.js';
import { ExplainedError } from '../lib/explained-error.js';
import { listOrgs } from '../orgs/queries.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { namedOrg } from './named-org.js';

interface VerifyOptions extends CommonOptions {
  org?: string;
  file: string[];
  against: string[];
  publicKey: string[];
  accept: string[];
}

export function verifyCommand(): Command {
  return databaseCommand('verify')
    .description(
      'verify the log of audit events; names the first event that was changed, removed, inserted or reordered',
    )
    .option('--org <slug>', 'only this organization (default: all)')
    .addOption(
      many('--file <file>', 'an exported log in place of the database, or parts of one in their order'),
    )
    .addOption(many('--against <file>', 'an exported log that must be what the database still has'))
    .addOption(
      many(
        '--public-key <key>',
        'a key to trust beside those of this installation, the newest first; all lines of "events key" in one will do',
      ),
    )
    .addOption(
      many('--accept <event>', 'the id of an event that the release before the log wrote in an upgrade'),
    )
    .action(async (options: VerifyOptions) => {
      const results = options.file.length === 0 ? await verifyOrgs(options) : await verifyFiles(options);
      const result = options.file.length === 1 ? results[0] : results;
      print(options, result, results.map(sentence).join('\n'));
      if (results.some(({ wrong }) => wrong !== null)) process.exitCode = 1;
    });
}

export function many(flags: string, description: string): Option {
  return new Option(flags, `${description}; may be repeated`)
    .argParser((text: string, before: string[]) => [...before, text])
    .default([], 'none');
}

type Result = Verdict & {
  name: string;
  unsealed?: number;
  begins_after?: number;
  replaced_key?: string | null;
  broke_off_after?: number;
  differences?: Difference[];
};

async function verifyOrgs(options: VerifyOptions): Promise<Result[]> {
  if (options.databaseUrl === undefined) await requireInstallation(options.dataDir);
  const trust = trustOf(options);
  const exported = await readExports(options, trust);
  const file = seenHeadsFile(options);
  // Read before the database, whose log is then at least as long.
  const heads = readSeenHeads(file);
  const keys = findEventKeys(eventKeySourceOf(options));
  return withDatabase(options, 'events verify', async (pool) => {
    const results = exported.filter(({ result }) => result.wrong !== null).map(({ result }) => result);
    const orgs = await orgsOf(pool, options.org);
    const verdicts: (Verdict & { orgId: string })[] = [];
    for (const { id, slug } of orgs) {
      const references = [
        ...referenceOf(file, heads.get(id)),
        ...exported.filter(({ part }) => part?.org_id === id).map(({ reference }) => reference),
      ];
      const verdict = await withProgress(slug, (onEntry) =>
        verifyStore(pool, id, trust, { references, keys, onEntry }),
      );
      results.push({ name: slug, ...verdict });
      verdicts.push({ orgId: id, ...verdict });
    }
    const altered = await verifySchema(pool);
    results.push(...altered);
    await recordVerifications(
      pool,
      verdicts.map(({ orgId, entries, fault }) => ({
        orgId,
        entries,
        fault: fault ?? altered[0]?.fault ?? null,
      })),
    );
    const known = new Set(orgs.map(({ id }) => id));
    const gone = new Map(
      exported.flatMap(({ part, result }) => (part ? [[part.org_id, result.name] as const] : [])),
    );
    if (options.org === undefined) for (const id of heads.keys()) gone.set(id, file);
    for (const [id, source] of gone) if (!known.has(id)) results.push(missing(id, source));
    return results;
  });
}

/** An added policy hides events from the verification too, and an added trigger drops them before they have a mark. */
async function verifySchema(pool: Pool): Promise<Result[]> {
  const differences = compareCatalogues(wantedCatalogue(), await inTransaction(pool, readCatalogue));
  if (differences.length === 0) return [];
  const list = differences.map(explainDifference).join('\n');
  const wrong = `these objects of the database are not as the migrations made them, so events may be hidden or lost:\n${list}`;
  const none = { entries: 0, checkpoints: 0, unmarked: 0 };
  return [{ name: 'the database', ...none, wrong, fault: 'altered', differences }];
}

const LONGEST_DEFINITION = 200;

function explainDifference({ object, wanted, found }: Difference): string {
  if (wanted === null) return `  ${object} was added: ${shorten(found!)}`;
  if (found === null) return `  ${object} is missing: ${shorten(wanted)}`;
  return `  ${object} was changed: ${shorten(found)} in place of ${shorten(wanted)}`;
}

function shorten(text: string): string {
  return text.length > LONGEST_DEFINITION ? `${text.slice(0, LONGEST_DEFINITION)}…` : text;
}

function missing(orgId: string, source: string): Result {
  const wrong = `${source} knows a log of it, and it is not among the organizations that were looked at`;
  return { name: orgId, entries: 0, checkpoints: 0, unmarked: 0, wrong, fault: 'tampered' };
}

function referenceOf(name: string, head: LogPosition | undefined): ReferenceLog[] {
  return head ? [{ name, positions: only(head) }] : [];
}

async function* only(position: KnownPosition): AsyncGenerator<KnownPosition> {
  yield await Promise.resolve(position);
}

async function readExports(
  options: VerifyOptions,
  trust: Trust,
): Promise<{ result: Result; part: FilePart | undefined; reference: ReferenceLog }[]> {
  const all = [];
  for (const file of options.against) {
    const { positionsOf } = await import('../audit/verify/verify-file.js');
    const { result, part } = await verifyOne(file, trust);
    const positions = named(file, positionsOf(createReadStream(file)));
    all.push({ result, part: part?.end && part, reference: { name: file, positions } });
  }
  return all;
}

async function orgsOf(pool: Pool, slug: string | undefined): Promise<{ id: string; slug: string }[]> {
  return slug === undefined ? listOrgs(pool) : [{ id: await namedOrg(pool, slug), slug }];
}

async function verifyFiles(options: VerifyOptions): Promise<Result[]> {
  // An auditor with a public key needs no installation.
  const trust = trustOf(options);
  const results: Result[] = [];
  let before: Verified | undefined;
  for (const file of options.file) {
    const { result, part } = await verifyOne(file, trust, before?.part?.promised);
    const seq = before?.part?.end?.seq;
    if (before && seq !== undefined && goesOn(before.part!, part)) {
      // The next part is signed and linked to this one, which only lacked its end.
      if (before.result.wrong !== null) {
        Object.assign(before.result, { wrong: null, fault: null, broke_off_after: seq });
      }
    } else if (before && result.wrong === null) {
      Object.assign(result, {
        wrong: `it does not go on where ${before.result.name} ends`,
        fault: 'tampered',
      });
    }
    results.push(result);
    before = { result, part };
  }
  return results;
}

/** Whether a part of a log begins exactly at the end of the previous one. */
function goesOn({ end }: FilePart, part: FilePart | undefined): boolean {
  return (
    end !== undefined &&
    part !== undefined &&
    end.seq === part.after.seq &&
    sameBytes(end.link, part.after.link)
  );
}

interface Verified {
  result: Result;
  part: FilePart | undefined;
}

async function verifyOne(file: string, trust: Trust, promised: FilePart['promised'] = []): Promise<Verified> {
  // Loaded on demand: the validator takes as long to load as every other module together.
  const { verifyFile } = await import('../audit/verify/verify-file.js');
  const { verdict, part } = await withProgress(file, (onEntry) =>
    verifyFile(createReadStream(file), trust, promised, onEntry),
  ).catch((cause: unknown) => explain(file, cause));
  return { result: { name: file, ...verdict }, part };
}

async function* named<T>(file: string, source: AsyncIterable<T>): AsyncGenerator<T> {
  try {
    yield* source;
  } catch (cause) {
    explain(file, cause);
  }
}

function explain(file: string, cause: unknown): never {
  if (cause instanceof ExplainedError) throw new ExplainedError(`${file}: ${cause.message}`, { cause });
  if ((cause as NodeJS.ErrnoException).syscall === undefined) throw cause;
  throw new ExplainedError(`${file} cannot be read: ${(cause as Error).message}`, { cause });
}

/** Throws ExplainedError without a key: a new key would have signed no log. */
function trustOf(options: VerifyOptions): Trust {
  const named = publicKeysIn(options.publicKey);
  const source = eventKeySourceOf(options);
  const own = options.file.length > 0 && named.length > 0 ? [] : (findEventKeys(source)?.known ?? []);
  const keys = [...own, ...named];
  if (keys.length === 0) {
    throw new ExplainedError(
      `there is no key in ${describeEventKeys(source)}: name the data directory of the service, or its public key with --public-key`,
    );
  }
  return { keys, accepted: new Set(options.accept.map((id) => id.toLowerCase())) };
}

/** Lines of "sandkeep events key", which prints the id of a key after it. */
export function publicKeysIn(texts: readonly string[]): PublicKey[] {
  return texts.flatMap(keyTextsIn).map(parsePublicKey);
}

const VERDICTS: Record<FaultKind, string> = {
  tampered: 'TAMPERED WITH',
  altered: 'ALTERED',
  unknown_key: 'SIGNED BY AN UNKNOWN KEY',
  unsealed: 'NOT COMPLETE',
};

function sentence(result: Result): string {
  const { name, wrong, fault, entries, checkpoints, unmarked, unsealed = 0, begins_after = 0 } = result;
  const { replaced_key: replaced = null } = result;
  if (wrong !== null) return `${name}: ${VERDICTS[fault ?? 'tampered']}: ${wrong}`;
  const notes = [
    begins_after > 0 ? `; it begins after entry ${begins_after}` : '',
    result.broke_off_after === undefined
      ? ''
      : `; it broke off after entry ${result.broke_off_after}, where the next goes on`,
    unmarked > 0 ? `; ${unmarked} events were not written under the event keys` : '',
    unsealed > 0 ? `; ${unsealed} events are not sealed yet` : '',
    replaced === null
      ? ''
      : `; it ends in what the key ${replaced} signed, which was replaced: whoever has that one may have written it`,
  ];
  return `${name}: in order: ${counted(entries, 'event')}, ${counted(checkpoints, 'signed checkpoint')}${notes.join('')}`;
}

async function withProgress<T>(
  name: string,
  work: (onEntry: (seq: number) => void) => Promise<T>,
): Promise<T> {
  if (!process.stderr.isTTY) return work(() => undefined);
  const bar = new SingleBar({ format: `${name}  entry {seq}`, stream: process.stderr, hideCursor: true });
  bar.start(0, 0, { seq: 0 });
  try {
    return await work((seq) => {
      if (seq % 1_000 === 0) bar.update({ seq });
    });
  } finally {
    bar.stop();
  }
}
