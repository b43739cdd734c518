import type { ComponentChildren } from 'preact';

export function Field(props: { label: string; hint?: string | undefined; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{props.label}</span>
      {props.children}
      {props.hint !== undefined && <small>{props.hint}</small>}
    </label>
  );
}
