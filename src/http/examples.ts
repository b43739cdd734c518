/** One example of each operation: a test sends the request to a service and compares the answer. */

export interface Example {
  /** Values of path, query and header parameters, by name. */
  parameters?: Record<string, string | number | boolean | readonly string[]>;
  /** The body of the request: a JSON value, or the text of another media type. */
  body?: unknown;
  /** The body of the answer: a JSON value, or the text of another media type. */
  answer: unknown;
  /** The status of the answer, where the operation never succeeds. Default: 200. */
  status?: number;
}

/** By operation id. */
export type Examples = Record<string, Example>;

interface Operation {
  operationId?: string;
  parameters?: { name?: string; example?: unknown; schema?: { type?: unknown } }[];
  requestBody?: { content?: Content };
  responses?: Record<string, { content?: Content }>;
}
type Content = Record<string, { example?: unknown }>;

/** Writes the examples into the operations of an OpenAPI document, each under the first media type of its body. */
export function addExamples(paths: object, examples: Examples): void {
  for (const operation of Object.values(paths).flatMap(
    (path: object) => Object.values(path) as Operation[],
  )) {
    const example = examples[operation.operationId ?? ''];
    if (!example) continue;
    for (const parameter of operation.parameters ?? []) {
      const value = example.parameters?.[parameter.name ?? ''];
      if (value !== undefined)
        parameter.example = parameter.schema?.type === 'array' ? [value].flat() : value;
    }
    if ('body' in example) setExample(operation.requestBody?.content, example.body);
    setExample(operation.responses?.[example.status ?? 200]?.content, example.answer);
  }
}

function setExample(content: Content | undefined, value: unknown): void {
  const [first] = Object.values(content ?? {});
  if (first) first.example = value;
}
