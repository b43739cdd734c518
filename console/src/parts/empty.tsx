import type { ComponentChildren } from 'preact';
import { CodeLines } from './copy';

/** Nothing to list: the next step, with a line to copy. */
export function Empty(props: { title: string; line?: string; children?: ComponentChildren }) {
  return (
    <div class="panel empty">
      <h2>{props.title}</h2>
      {props.children}
      {props.line !== undefined && <CodeLines text={props.line} of="command" />}
    </div>
  );
}
