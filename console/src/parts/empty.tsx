import type { ComponentChildren } from 'preact';
import type { Scope } from '../../../src/access/scopes';
import { may } from '../lib/session';
import { CodeLines } from './copy';

export const CREATE_HERE = 'Create one here, or with a key in the variable KEY:';

/** The way to the first row. A session without the scope does not see it. */
interface Creation {
  scope: Scope;
  how: string;
  /** A command to copy. */
  line?: string;
}

export interface EmptyProps {
  title: string;
  text?: string;
  /** A command to copy. Each session of the page may use it. */
  line?: string;
  create?: Creation;
  children?: ComponentChildren;
}

/** Nothing to list: the next step of this session. */
export function Empty({ title, text, line, create, children }: EmptyProps) {
  const creation = create !== undefined && may(create.scope) ? create : undefined;
  const shownLine = creation?.line ?? line;
  return (
    <div class="panel empty">
      <h2>{title}</h2>
      {text !== undefined && <p>{text}</p>}
      {children}
      {creation !== undefined && <p>{creation.how}</p>}
      {shownLine !== undefined && <CodeLines text={shownLine} of="command" />}
    </div>
  );
}
