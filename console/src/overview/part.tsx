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

/** A part of the overview. */
export function Part<T>({ title, resource, more, class: given = '', children }: PartProps<T>) {
  const heading = useId();
  return (
    <section class={`panel part-panel ${given}`} aria-labelledby={heading}>
      <header>
        <h2 id={heading}>{title}</h2>
        {more}
      </header>
      <Loaded resource={resource}>{children}</Loaded>
    </section>
  );
}
