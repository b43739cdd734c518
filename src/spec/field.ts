import { Type, type Static, type TOptional, type TProperties, type TSchema } from 'typebox';
import { Named } from '../http/schema.js';
import type { Capability } from './capabilities.js';
import type { EngineAbilities } from './engine-abilities.js';
import type { NetworkRequest } from './gated-network.js';
import type { MountRequest } from './mount-schema.js';
import type { MountVolumes, RunSecrets, RunSpec } from './run-spec.js';

/** An ability that a value needs. An engine without it cannot `what`. */
export interface Requirement {
  capability: Capability;
  what: string;
  /** Default: leave the field out. */
  remedy?: string;
  /** Default: the field of the entry. */
  field?: string;
}

/** The fields that rules of other fields read, as the request has them. */
export interface OtherFields {
  runtime?: { cmd?: string[] | null; entrypoint?: string[] | null };
  mounts?: MountRequest[];
  lifecycle?: { ephemeral?: boolean; idle_timeout_secs?: number | null };
  network?: NetworkRequest & { max_udp_connections?: number | null };
}

export interface Place {
  /** The path of the field, such as `resources.vcpus`. */
  field: string;
  whole: OtherFields;
}

/**
 * A field of the specification: everything that the service does with it, except for the work of engines. All functions
 * get the value with its default.
 */
interface FieldEntry<Schema extends TSchema, Answer extends TSchema | null> {
  /** The field in requests. */
  schema: Schema;
  /** The field in answers. Null: it is not shown. Default: as in requests. */
  answer?: Answer;
  /** The value of a request without the field. Default: the `default` of the schema. */
  default?: Static<Schema>;
  /** Unknown fields in it are refused, because it limits the sandbox or gives it something. Default: false. */
  restricts?: boolean;
  /** The size of a specification leaves it out, because `check` limits its size. Default: false. */
  limitsItself?: boolean;
  /** Throws by `refuse`. The schema has checked the value. */
  check?(value: Static<Schema>, place: Place, engine: EngineAbilities): void;
  requires?(value: Static<Schema>, place: Place): readonly (Requirement | false)[];
  /** Its value in answers and in the row. Undefined: left out. Default: the value. */
  show?(value: Static<Schema>): (Answer extends TSchema ? Static<Answer> : never) | undefined;
  /** Its part of the specification that engines get. Default: none. */
  run?(value: Static<Schema>, place: Place, volumes: MountVolumes): Partial<RunSpec>;
  /** Its values that are sealed before they are stored. Default: none. */
  seal?(value: Static<Schema>): Partial<RunSecrets>;
}

export interface SpecField<
  Request extends TSchema = TSchema,
  Answer extends TSchema | null = TSchema | null,
> extends Omit<FieldEntry<TSchema, TSchema | null>, 'schema' | 'answer'> {
  request: Request;
  answer: Answer;
}

/** A field that a request can leave out. */
export function field<Schema extends TSchema, Answer extends TSchema | null = TOptional<Schema>>(
  entry: FieldEntry<Schema, Answer>,
): SpecField<TOptional<Schema>, Answer> {
  const { schema, answer, ...rules } = entry;
  const initial = rules.default === undefined ? (schema as { default?: unknown }).default : rules.default;
  if (initial === undefined) throw new Error('a field that can be left out needs a default');
  const shown = answer === undefined ? Type.Optional(schema) : answer;
  return {
    ...rules,
    request: Type.Optional(schema) as TOptional<Schema>,
    answer: shown as Answer,
    default: initial,
  };
}

/** A field that every request has. */
export function requiredField<Schema extends TSchema, Answer extends TSchema | null>(
  entry: Omit<FieldEntry<Schema, Answer>, 'default'> & { answer: Answer },
): SpecField<Schema, Answer> {
  const { schema, ...rest } = entry;
  return { ...rest, request: schema };
}

export type Fields = Record<string, SpecField>;
export type RequestProperties<F extends Record<string, { request: TSchema }>> = {
  [Name in keyof F]: F[Name]['request'];
};
export type AnswerProperties<F extends Record<string, { answer: TSchema | null }>> = {
  [Name in keyof F as F[Name]['answer'] extends null ? never : Name]: NonNullable<F[Name]['answer']>;
};

/** Fields in one object of the request and of the answer. */
export interface SpecGroup<Request extends TSchema = TSchema, Answer extends TSchema = TSchema> {
  fields: Fields;
  request: Request;
  answer: Answer;
  restricts: boolean;
}

interface Component {
  title: string;
  description: string;
}

/** `answer`: its name in the OpenAPI document when the answer has other fields than the request. */
export function group<const F extends Fields>({
  fields,
  request,
  answer = request,
  restricts = false,
}: {
  fields: F;
  request: Component;
  answer?: Component;
  restricts?: boolean;
}) {
  return {
    fields,
    restricts,
    request: Type.Optional(Named(request.title, requestProperties(fields), request.description)),
    answer: Named(answer.title, answerProperties(fields), answer.description),
  };
}

export function requestProperties<F extends Record<string, { request: TSchema }>>(
  fields: F,
): RequestProperties<F> {
  const properties: TProperties = {};
  for (const [name, { request }] of Object.entries(fields)) properties[name] = request;
  return properties as RequestProperties<F>;
}

export function answerProperties<F extends Record<string, { answer: TSchema | null }>>(
  fields: F,
): AnswerProperties<F> {
  const properties: TProperties = {};
  for (const [name, { answer }] of Object.entries(fields)) if (answer !== null) properties[name] = answer;
  return properties as AnswerProperties<F>;
}
