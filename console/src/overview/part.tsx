import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import type { Resource } from '../lib/use-resource';
import { Loaded } from '../parts/loaded';

interface PartProps<T> {
  title: string;
  resource: Resource<T>;
  /** A link to the page with the whole of it. */
  more?: ComponentChildren;
  class?: string;
  children: (data: T) => ComponentChildren;
}

/** A part of the overview. A key that may not read it is told so in a line, because the other parts remain. */
export function Part<T>({ title, resource, more, class: given = '', children }: PartProps<T>) {
  const heading = useId();
  return (
    <section class={`panel part-panel ${given}`} aria-labelledby={heading}>
      <header>
        <h2 id={heading}>{title}</h2>
        {more}
      </header>
      {resource.problem?.status === 403 ? (
        <p>
          <small>The key of this session may not read this.</small>
        </p>
      ) : (
        <Loaded resource={resource}>{children}</Loaded>
      )}
    </section>
  );
}
