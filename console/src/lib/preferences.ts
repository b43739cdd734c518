import { effect, signal, type Signal } from '@preact/signals';

/** A choice that this browser remembers. */
function remembered<T extends string>(name: string, values: readonly [T, ...T[]]): Signal<T> {
  const stored = localStorage.getItem(name);
  const choice = signal<T>(values.find((value) => value === stored) ?? values[0]);
  effect(() => localStorage.setItem(name, choice.value));
  return choice;
}

export const theme = remembered('sandkeep.theme', ['system', 'light', 'dark']);
export const timeZone = remembered('sandkeep.times', ['local', 'utc']);
export const density = remembered('sandkeep.density', ['comfortable', 'compact']);

effect(() => {
  if (theme.value === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = theme.value;
});
effect(() => {
  document.documentElement.dataset['density'] = density.value;
});
