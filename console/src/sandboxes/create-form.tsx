import { formatLabels, parseLabels } from '../lib/labels';
import { Field } from '../parts/field';
import fields from './create-fields.json';
import { plainText, withPlainText } from './env-entries';
import { PublishedPorts } from './published-ports';
import { SecretVariables } from './secret-variables';

type FormField = (typeof fields)[number] & {
  choices?: readonly unknown[];
  default?: unknown;
  minimum?: number;
};
type Body = Record<string, unknown>;

/** These come first. The others are in a section that opens. */
const FIRST = new Set([
  'name',
  'image.reference',
  'resources.vcpus',
  'resources.memory_mib',
  'labels',
  'runtime.cmd',
  'lifecycle.ends_with_command',
]);

export function CreateForm({ value, change }: { value: Body; change: (value: Body) => void }) {
  const inputOf = (field: FormField) => (
    <Input
      key={field.path.join('.')}
      field={field}
      value={valueAt(value, field.path)}
      change={(next) => change(withValue(value, field.path, next))}
    />
  );
  const isFirst = ({ path }: FormField) => FIRST.has(path.join('.'));
  return (
    <>
      <div class="form-grid">{fields.filter(isFirst).map(inputOf)}</div>
      <details>
        <summary>All other fields</summary>
        <div class="form-grid">{fields.filter((field) => !isFirst(field)).map(inputOf)}</div>
        <SecretVariables env={value['env']} change={(env) => change(withValue(value, ['env'], env))} />
        <PublishedPorts
          ports={valueAt(value, ['network', 'ports'])}
          change={(ports) => change(withValue(value, ['network', 'ports'], ports))}
        />
        <p>
          <small>
            The JSON also takes mounts, files, network policies and other fields of the API reference.
          </small>
        </p>
      </details>
    </>
  );
}

interface InputProps {
  field: FormField;
  value: unknown;
  change: (value: unknown) => void;
}

function Input({ field, value, change }: InputProps) {
  const label = field.path.join(' ').replaceAll('_', ' ');
  return (
    <Field label={field.isRequired ? `${label} (required)` : label} hint={field.description}>
      {field.choices !== undefined || field.kind === 'boolean' ? (
        <select
          value={value === undefined ? '' : JSON.stringify(value).replaceAll('"', '')}
          onChange={({ currentTarget }) => {
            const text = currentTarget.value;
            change(text === '' ? undefined : field.kind === 'boolean' ? text === 'true' : text);
          }}
        >
          <option value="">default</option>
          {(field.choices ?? [true, false]).map((choice) => (
            <option key={String(choice)} value={String(choice)}>
              {field.kind === 'boolean' ? (choice === true ? 'yes' : 'no') : String(choice)}
            </option>
          ))}
        </select>
      ) : (
        <input
          type={field.kind === 'number' ? 'number' : 'text'}
          required={field.isRequired}
          min={field.minimum}
          placeholder={field.default === undefined ? PLACEHOLDERS[field.kind] : String(field.default)}
          spellcheck={false}
          defaultValue={textOf(field, value)}
          onChange={({ currentTarget }) => change(valueOf(field, currentTarget.value, value))}
        />
      )}
    </Field>
  );
}

const PLACEHOLDERS: Record<string, string> = {
  labels: 'team=ml, env=prod',
  variables: 'KEY=value, OTHER="a, b"',
  words: '["sh", "-c", "…"]',
};

function textOf({ kind }: FormField, value: unknown): string {
  if (value === undefined || value === null) return '';
  if (kind === 'labels') return formatLabels(value as Record<string, unknown>);
  if (kind === 'variables') return plainText(value);
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function valueOf({ kind }: FormField, text: string, before: unknown): unknown {
  // Secret entries have fields of their own.
  if (kind === 'variables') return withPlainText(before, text);
  if (text === '') return undefined;
  if (kind === 'number') return Number(text);
  if (kind === 'labels') return parseLabels(text);
  return kind === 'words' ? wordsOf(text) : text;
}

/** JSON, or words between spaces. */
function wordsOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text.split(' ').filter((word) => word !== '');
  }
}

function valueAt(body: Body, path: readonly string[]): unknown {
  return path.reduce<unknown>((value, name) => (value as Body | undefined)?.[name], body);
}

/** Without a value the field is left out, and so is an object that has no other. */
function withValue(body: Body, [name, ...deeper]: readonly string[], value: unknown): Body {
  const key = name!;
  const next = deeper.length === 0 ? value : withValue((body[key] ?? {}) as Body, deeper, value);
  const isEmpty = next === undefined || (deeper.length > 0 && Object.keys(next as Body).length === 0);
  const { [key]: _, ...others } = body;
  return isEmpty ? others : { ...body, [key]: next };
}
