import { effect, signal, type Signal } from '@preact/signals';

/**
 * Values by name that this browser remembers. Entries of another form are left out: the storage belongs to the user,
 * and an earlier release may have written it.
 */
export function storedRecord<T>(
  name: string,
  isValue: (value: unknown) => value is T,
): Signal<Readonly<Record<string, T>>> {
  const record = signal(read(name, isValue));
  effect(() => localStorage.setItem(name, JSON.stringify(record.value)));
  return record;
}

function read<T>(name: string, isValue: (value: unknown) => value is T): Readonly<Record<string, T>> {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(name) ?? '{}');
    if (typeof stored !== 'object' || stored === null || Array.isArray(stored)) return {};
    return Object.fromEntries(
      Object.entries(stored).filter((entry): entry is [string, T] => isValue(entry[1])),
    );
  } catch {
    return {};
  }
}
