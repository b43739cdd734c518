import { actorId } from '../audit/events/actor.js';
import { leafOf } from '../audit/events/hash-chain.js';
import { redactEmail } from '../audit/events/redact-email.js';
import type { EventActor } from '../audit/events/schema.js';
import { isUint64 } from '../http/schema.js';
import { explainFirst, validatorOf } from '../http/validation.js';
import { microsOf, parseInstant, type Instant } from '../lib/instant.js';
import { parseJson } from '../lib/json.js';
import { findUnstorable, isDeeperThan } from '../lib/storable-text.js';
import { isUuid } from '../lib/uuid.js';
import { encodeSpec, parseSpec, SPEC_FORMAT } from '../spec/text.js';
import { Line, type Kind } from './schema.js';
import { stripUnknownFields } from './strip-unknown.js';
import { findRepeatedKey, InexactNumber, parseInexact } from '../lib/exact-json.js';
import { MASKED, withoutSecrets } from '../spec/env-schema.js';
import type { SandboxSpec } from '../spec/specification.js';

/** `values`: the columns of `staging-queries.ts` in order. */
export type Parsed = { kind: Kind; values: (string | number | boolean | null)[] };

const validate = validatorOf(Line);

export class BadLine extends Error {}

/** Far below the limits of recursion here and in PostgreSQL. */
const MAX_DEPTH = 200;

/** Authenticates an event as written by this installation; null without event keys. */
export type Mark = (leaf: Buffer) => Buffer | null;

export function parseLine(text: string, mark: Mark = () => null): Parsed | undefined {
  if (text.trim() === '') return undefined;
  const value = parseJson(text);
  if (value === undefined) throw new BadLine('is not JSON');
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new BadLine('is not a JSON object');
  }
  if (isDeeperThan(value, MAX_DEPTH)) throw new BadLine(`is nested more than ${MAX_DEPTH} levels deep`);
  const unstorable = findUnstorable(value);
  if (unstorable !== undefined) {
    throw new BadLine(`${unstorable || 'a name'} has U+0000 or half of a surrogate pair`);
  }
  if (!validate(value)) throw new BadLine(explainFirst(validate.errors ?? []));
  const inexact = value.kind === 'event' ? findInexact(text) : undefined;
  if (inexact !== undefined) throw new BadLine(inexact);
  // Limits of a sandbox may exceed a double. The schema refuses other large numbers.
  const exact = value.kind === 'sandbox' ? (parseSpec(text) as Line) : value;
  return { kind: value.kind, values: toValues(stripUnknownFields(Line, exact), mark) };
}

function toValues(line: Line, mark: Mark): Parsed['values'] {
  switch (line.kind) {
    case 'org':
      return [line.id, line.name, line.slug];
    case 'sandbox': {
      const startedAt = time('started_at', line.started_at);
      const stoppedAt = time('stopped_at', line.stopped_at);
      if (stoppedAt !== null) ordered('started_at', startedAt, 'stopped_at', stoppedAt);
      checkLabels(line.spec?.labels ?? {});
      const spec = line.spec == null ? null : withEphemeral(line.spec, line.ephemeral);
      if (spec === undefined) {
        throw new BadLine('ephemeral and spec.lifecycle.ephemeral differ: give both the same value');
      }
      const createdAt = time('created_at', line.created_at);
      const removedAt = time('removed_at', line.removed_at);
      if (!(line.spec?.rlimits ?? []).every(({ soft, hard }) => isUint64(soft) && isUint64(hard))) {
        throw new BadLine('spec.rlimits has a limit above 18446744073709551615, or one with an exponent');
      }
      return [
        line.org_id,
        line.id,
        line.name,
        line.slug,
        line.status,
        line.status === 'starting' ? (line.status_reason ?? null) : null,
        line.ephemeral,
        createdAt,
        line.last_failure_message ?? null,
        spec && encodeSpec(withoutSecretValues(spec)),
        spec && SPEC_FORMAT,
        startedAt,
        stoppedAt,
        // An ephemeral sandbox is removed when it ends.
        removedAt ?? (isGone(line) ? (stoppedAt ?? createdAt) : null),
      ];
    }
    case 'run': {
      const startedAt = time('started_at', line.started_at);
      const stoppedAt = time('stopped_at', line.stopped_at);
      if (stoppedAt !== null) ordered('started_at', startedAt, 'stopped_at', stoppedAt);
      if (startedAt !== null && stoppedAt !== null && daysBetween(startedAt, stoppedAt) > MAX_RUN_DAYS) {
        throw new BadLine('a run is longer than a hundred years');
      }
      const { org_id, id, sandbox_id, vcpus, memory_mib, disk_mib } = line;
      return [org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, startedAt, stoppedAt];
    }
    case 'volume':
      if ((line.volume_kind === 'host') !== (line.name === null)) {
        throw new BadLine('a managed volume has a name, the host volume has none');
      }
      return [
        line.org_id,
        line.id,
        line.volume_kind,
        line.name,
        time('created_at', line.created_at),
        time('removed_at', line.removed_at),
      ];
    case 'accrual': {
      const from = time('from', line.from);
      const to = time('to', line.to);
      ordered('from', from, 'to', to);
      return [line.org_id, line.volume_id, from, to, line.used_mib];
    }
    case 'event': {
      const actor =
        line.actor.kind === 'user'
          ? { ...line.actor, redacted_email: redactEmail(line.actor.redacted_email) }
          : line.actor;
      checkActor(actor);
      const payload = JSON.stringify(line.payload ?? null);
      const { category, event_type } = line;
      const occurred_at = time('timestamp', line.timestamp)!;
      const resource_id = resourceOf(line.payload);
      const [org_id, id] = [line.org_id.toLowerCase(), line.id.toLowerCase()];
      const marked = mark(
        leafOf({
          org_id,
          id,
          occurred_at,
          category,
          event_type,
          actor,
          payload: line.payload ?? null,
          resource_id,
        }),
      );
      return [
        org_id,
        id,
        occurred_at,
        category,
        event_type,
        JSON.stringify(actor),
        payload,
        actor.kind,
        actorId(actor),
        resource_id,
        marked && `\\x${marked.toString('hex')}`,
      ];
    }
  }
}

function isGone({ ephemeral, status }: Extract<Line, { kind: 'sandbox' }>): boolean {
  return ephemeral && (status === 'stopped' || status === 'failed');
}

/** Each day of a run is a row of usage. */
const MAX_RUN_DAYS = 36_525;

function daysBetween(from: Instant, to: Instant): number {
  return Number((microsOf(to) - microsOf(from)) / 86_400_000_000n);
}

/** An index entry has at most about 2,700 bytes. */
const MAX_LABEL_BYTES = 2_500;

function checkLabels(labels: Record<string, string>): void {
  for (const [key, value] of Object.entries(labels)) {
    if (Buffer.byteLength(key) + Buffer.byteLength(value) > MAX_LABEL_BYTES) {
      throw new BadLine(
        `the label ${JSON.stringify(key.slice(0, 40))} is longer than ${MAX_LABEL_BYTES} bytes, key and value together`,
      );
    }
  }
}

/** An index has the id of the actor, and pages and log batches have whole actors. Only payloads may be long. */
const MAX_ACTOR_BYTES = 2_000;

function checkActor(actor: EventActor): void {
  if (Buffer.byteLength(JSON.stringify(actor)) <= MAX_ACTOR_BYTES) return;
  throw new BadLine(`the actor is longer than ${MAX_ACTOR_BYTES} bytes as JSON`);
}

function time(name: string, text: string | null | undefined): Instant | null {
  if (text == null) return null;
  const instant = parseInstant(text);
  if (!instant)
    throw new BadLine(`${name} must be an RFC 3339 date-time with an offset, of a day that exists`);
  return instant;
}

function ordered(fromName: string, from: Instant | null, toName: string, to: Instant | null): void {
  if (from === null) throw new BadLine(`${toName} needs ${fromName}`);
  if (to !== null && to < from) throw new BadLine(`${toName} is before ${fromName}`);
}

function resourceOf(payload: unknown): string | null {
  if (typeof payload !== 'object' || payload === null) return null;
  const { resource_id, sandbox_id, volume_id, api_key_id } = payload as Record<string, unknown>;
  const id = resource_id ?? sandbox_id ?? volume_id ?? api_key_id;
  return typeof id === 'string' && isUuid(id) ? id.toLowerCase() : null;
}

/** The event log hashes canonical JSON (RFC 8785): its numbers are doubles, its keys unique. */
function findInexact(text: string): string | undefined {
  const repeated = findRepeatedKey(text);
  if (repeated !== undefined) return `has the key ${JSON.stringify(repeated)} twice: give it once`;
  const event = parseInexact(text) as { payload?: unknown } | undefined;
  const found = findNumber(event?.payload, 'payload');
  return found && `${found.path} is ${found.number.text}, which would be changed: write it as a string`;
}

function findNumber(value: unknown, path: string): { path: string; number: InexactNumber } | undefined {
  if (value instanceof InexactNumber) return { path, number: value };
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [key, item] of Object.entries(value)) {
    const found = findNumber(item, Array.isArray(value) ? `${path}[${key}]` : `${path}.${key}`);
    if (found) return found;
  }
  return undefined;
}

function withEphemeral(spec: SandboxSpec, ephemeral: boolean): SandboxSpec | undefined {
  if ((spec.lifecycle.ephemeral ?? ephemeral) !== ephemeral) return undefined;
  return { ...spec, lifecycle: { ...spec.lifecycle, ephemeral } };
}

/** Masks secret variables. Keeps boolean members of `injection`: another member may contain the value of the secret. */
function withoutSecretValues(spec: SandboxSpec): SandboxSpec {
  const { network } = spec;
  const env = withoutSecrets(spec.env, MASKED);
  if (!network.secrets) return { ...spec, env };
  const secrets = network.secrets.map((secret) => ({ ...secret, injection: flagsOf(secret.injection) }));
  return { ...spec, env, network: { ...network, secrets } };
}

function flagsOf(injection: Record<string, unknown>): Record<string, boolean> {
  return Object.fromEntries(
    Object.entries(injection).filter((entry): entry is [string, boolean] => typeof entry[1] === 'boolean'),
  );
}
