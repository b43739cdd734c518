import type { ComponentChildren } from 'preact';
import type { Resource } from '../lib/use-resource';
import { ErrorPanel } from './error-panel';

/** A resource: its fault, its data, or after 200 ms a sign that it is on its way. */
export function Loaded<T>(props: { resource: Resource<T>; children: (data: T) => ComponentChildren }) {
  const { data, problem, isSlow, reload } = props.resource;
  return (
    <>
      {problem !== undefined && <ErrorPanel problem={problem} retry={reload} />}
      {data !== undefined && props.children(data)}
      {isSlow && (
        <p class="waiting" role="status">
          Waiting for the service…
        </p>
      )}
    </>
  );
}
