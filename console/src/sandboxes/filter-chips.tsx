import { formatLabels } from '../lib/labels';
import { timeZone } from '../lib/preferences';
import { dateTime } from '../lib/time';
import type { UrlState } from '../lib/url-state';
import { Chips } from '../parts/chips';
import { NO_FILTER, useFilters } from './filter';

/** The filters of the address in words. */
export function FilterChips() {
  const url = useFilters();
  const chip = (text: string, name: string) => ({ text, remove: () => url.set({ [name]: undefined }) });
  const listed = (title: string, name: string) => {
    const values = url.all(name).map((value) => value.replaceAll('_', ' '));
    return values.length === 0 ? [] : [chip(`${title} ${values.join(' or ')}`, name)];
  };
  const single = (title: string, name: string, shown: (value: string) => string) =>
    url.get(name) === '' ? [] : [chip(`${title} ${shown(url.get(name))}`, name)];
  return (
    <Chips
      of={[
        ...single('Name contains', 'name_contains', (part) => part),
        ...single('Name begins with', 'name_prefix', (prefix) => prefix),
        ...listed('Status:', 'status'),
        ...listed('Stopped for:', 'stop_reason'),
        ...labelChips(url),
        ...single('Created after', 'created_after', timeOf),
        ...single('Created before', 'created_before', timeOf),
      ]}
      removeAll={() => url.set(NO_FILTER)}
    />
  );
}

function timeOf(value: string): string {
  return Number.isNaN(Date.parse(value)) ? value : dateTime(value, timeZone.value);
}

/** One for each label: all of them must match. */
function labelChips(url: UrlState) {
  const json = url.get('labels');
  if (json === '') return [];
  let labels: unknown;
  try {
    labels = JSON.parse(json);
  } catch {
    labels = undefined;
  }
  if (typeof labels !== 'object' || labels === null || Array.isArray(labels)) {
    return [{ text: `Labels: ${json}`, remove: () => url.set({ labels: undefined }) }];
  }
  const entries = Object.entries(labels);
  return entries.map(([key, value]) => ({
    text: formatLabels({ [key]: value }),
    remove: () => {
      const others = entries.filter(([other]) => other !== key);
      url.set({ labels: others.length === 0 ? undefined : JSON.stringify(Object.fromEntries(others)) });
    },
  }));
}
