import { useSearchParams } from 'wouter-preact';

export interface UrlState {
  get: (name: string) => string;
  all: (name: string) => string[];
  /**
   * Undefined, an empty text and an empty list remove the parameter. Any change but one of the cursor returns to the
   * first page.
   */
  set: (
    changes: Record<string, string | readonly string[] | undefined>,
    options?: { replace?: boolean },
  ) => void;
}

/** The state of a list is its address, so that it can be shared, and "back" undoes a filter. */
export function useUrlState(): UrlState {
  const [search, setSearch] = useSearchParams();
  return {
    get: (name) => search.get(name) ?? '',
    all: (name) => search.getAll(name),
    set: (changes, options) =>
      setSearch((before: URLSearchParams) => {
        const next = new URLSearchParams(before);
        if (!('cursor' in changes)) next.delete('cursor');
        for (const [name, value] of Object.entries(changes)) {
          next.delete(name);
          for (const item of [value ?? []].flat()) if (item !== '') next.append(name, item);
        }
        return next;
      }, options),
  };
}
