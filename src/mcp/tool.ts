import type { CallToolResult, ToolAnnotations } from '@modelcontextprotocol/server';
import { Type, type Static, type TProperties, type TSchema } from 'typebox';
import type { Scope } from '../access/scopes.js';
import type { Api } from './api.js';

export interface ToolContext {
  api: Api;
  /** Shows the client a sentence or new output. It may be dropped, when the client reads slowly or did not ask. */
  progress(this: void, text: string): void;
}

export interface Tool {
  name: string;
  title: string;
  description: string;
  /** The scopes of the API that the tool needs. */
  scopes: readonly Scope[];
  annotations: ToolAnnotations;
  input: TSchema;
  /** `input` has passed the schema. */
  call(input: unknown, context: ToolContext): Promise<CallToolResult>;
}

interface Definition<T extends TProperties> extends Omit<Tool, 'input' | 'call' | 'annotations'> {
  annotations: Required<Pick<ToolAnnotations, 'readOnlyHint' | 'destructiveHint' | 'idempotentHint'>>;
  input: T;
  call(input: Static<ReturnType<typeof inputOf<T>>>, context: ToolContext): Promise<CallToolResult>;
}

const inputOf = <T extends TProperties>(properties: T) =>
  Type.Object(properties, { additionalProperties: false });

/** Nothing outside of the installation changes by a tool. */
const CLOSED_WORLD = { openWorldHint: false };

export function tool<T extends TProperties>({
  input,
  annotations,
  description,
  ...rest
}: Definition<T>): Tool {
  const needs = rest.scopes.map((scope) => `\`${scope}\``).join(', ');
  return {
    ...rest,
    description: `${description} Scope of the key: ${needs}.`,
    annotations: { title: rest.title, ...CLOSED_WORLD, ...annotations },
    input: inputOf(input),
    call: (values, context) => rest.call(values as never, context),
  };
}

/** For a tool that changes nothing. */
export const READS = { readOnlyHint: true, destructiveHint: false, idempotentHint: true };

export function textResult(text: string): CallToolResult {
  return { content: [{ type: 'text', text }] };
}

/** The same value for the model, as text, and for programs. */
export function jsonResult(value: Record<string, unknown>): CallToolResult {
  return { ...textResult(JSON.stringify(value)), structuredContent: value };
}

/** A failure that the model sees and can act on. */
export function failure(advice: string): CallToolResult {
  return { ...textResult(advice), isError: true };
}
