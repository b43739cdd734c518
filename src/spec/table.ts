import { Buffer } from 'node:buffer';
import type { Static, TObject } from 'typebox';
import { ApiError } from '../http/errors.js';
import { stringifyExact } from '../lib/exact-json.js';
import type { EngineAbilities } from './engine-abilities.js';
import {
  answerProperties,
  requestProperties,
  type AnswerProperties,
  type OtherFields,
  type Place,
  type Requirement,
  type SpecField,
  type SpecGroup,
} from './field.js';
import { refuse } from './refuse.js';
import type { MountVolumes, RunSecrets, RunSpec } from './run-spec.js';
import { MAX_SPEC_BYTES } from './size-limits.js';

type Table = Record<string, SpecField | SpecGroup>;
interface Entry {
  path: string;
  /** The object that has it. Undefined: the specification itself. */
  group: string | undefined;
  key: string;
  field: SpecField;
}
/** A request that its schema has checked. */
type Request = OtherFields & Record<string, unknown>;
type UnmetRequirement = Requirement & { field: string };

/** Derives the schemas of requests and answers, and the steps of admission, from one table of fields. */
export function specificationOf<const T extends Table>(table: T) {
  const entries = Object.entries(table).flatMap(([name, entry]): Entry[] =>
    'fields' in entry
      ? Object.entries(entry.fields).map(([key, field]) => ({
          path: `${name}.${key}`,
          group: name,
          key,
          field,
        }))
      : [{ path: name, group: undefined, key: name, field: entry }],
  );
  const groups = Object.keys(table).filter((name) => 'fields' in table[name]!);
  const counted = Object.entries(table).flatMap(([name, entry]) =>
    'fields' in entry || entry.limitsItself !== true ? [name] : [],
  );

  /** Calls `use` for each field, with its value. */
  function forEach(request: Request, use: (entry: Entry, value: unknown, place: Place) => void): void {
    for (const entry of entries) {
      const { path, group, key, field } = entry;
      const given = (group === undefined ? request : (request[group] as Request | undefined))?.[key];
      use(entry, given === undefined ? field.default : given, { field: path, whole: request });
    }
  }

  function requirementsOf(request: Request): UnmetRequirement[] {
    const found: UnmetRequirement[] = [];
    forEach(request, ({ field }, value, place) => {
      for (const requirement of field.requires?.(value, place) ?? []) {
        if (requirement) found.push({ field: place.field, ...requirement });
      }
    });
    return found;
  }

  return {
    requestProperties: requestProperties(table),
    answerProperties: answerProperties(table),
    /** The fields in which unknown fields are refused. */
    restricting: Object.keys(table).filter((name) => table[name]!.restricts === true),
    paths: entries.map(({ path }) => path),

    /** Throws the first refusal, which names the field. */
    check(request: Request, engine: EngineAbilities): void {
      // Before the other checks, whose work grows with the size.
      checkSize(request, counted);
      forEach(request, ({ field }, value, place) => field.check?.(value, place, engine));
      const unmet = requirementsOf(request).find(({ capability }) => !engine.capabilities.has(capability));
      if (unmet) refuse(unmet.field, explainUnmet(unmet, engine));
    },

    /** Fills in the defaults. The specification for the engine and the one for callers have no secret values. */
    resolve(
      request: Request,
      volumes: MountVolumes,
    ): { runSpec: RunSpec; spec: Static<TObject<AnswerProperties<T>>> } {
      const runSpec: Partial<RunSpec> = {
        demands: [...new Set(requirementsOf(request).map(({ capability }) => capability))],
      };
      const spec: Record<string, unknown> = {};
      for (const name of groups) spec[name] = {};
      forEach(request, ({ group, key, field }, value, place) => {
        if (field.run) Object.assign(runSpec, field.run(value, place, volumes));
        if (field.answer === null) return;
        const shown = field.show ? field.show(value) : value;
        if (shown === undefined) return;
        const target = group === undefined ? spec : (spec[group] as Record<string, unknown>);
        target[key] = shown;
      });
      return { runSpec: runSpec as RunSpec, spec };
    },

    /** The secrets of a request, which are sealed before they are stored. */
    secretsOf(request: Request): RunSecrets {
      let secrets: RunSecrets = { registry: null, values: {}, env: {} };
      forEach(request, ({ field }, value) => {
        const part = field.seal?.(value);
        if (!part) return;
        // Spread, because assignment drops a variable with the name `__proto__`.
        const values = { ...secrets.values, ...part.values };
        secrets = { ...secrets, ...part, values, env: { ...secrets.env, ...part.env } };
      });
      return secrets;
    },
  };
}

function explainUnmet({ field, what, remedy }: UnmetRequirement, { name }: EngineAbilities): string {
  return `the ${name} runtime cannot ${what}: ${remedy ?? `leave ${field} out, or use a runtime that can`}`;
}

/** Bounds what a sandbox stores, and with it every list that shows the sandbox. */
function checkSize(request: Request, names: readonly string[]): void {
  const sizes = names.map((field) => ({ field, bytes: sizeOf(request[field]) }));
  const total = sizes.reduce((sum, { bytes }) => sum + bytes, 0);
  if (total <= MAX_SPEC_BYTES) return;
  const { field, bytes } = sizes.reduce((largest, part) => (part.bytes > largest.bytes ? part : largest));
  throw new ApiError(
    'invalid_sandbox_config',
    `the specification has ${total} bytes of JSON, and may have ${MAX_SPEC_BYTES}: ${field} has ${bytes} of them; put files into an image or a volume`,
    { field, bytes: total, limit_bytes: MAX_SPEC_BYTES },
  );
}

function sizeOf(part: unknown): number {
  return part === undefined ? 0 : Buffer.byteLength(stringifyExact(part));
}
