import { parseLabels, shownLabels } from '../lib/labels';
import type { UrlState } from '../lib/url-state';
import { Field } from './field';
import { Typed } from './typed';

/** The labels that the rows of a list must have: the parameter `labels` of the address. */
export function LabelsFilter({ of }: { of: UrlState }) {
  return (
    <Field label="Labels">
      <Typed
        label="Labels"
        placeholder="team=ml, env=prod"
        value={shownLabels(of.get('labels'))}
        change={(text) => {
          const labels = parseLabels(text);
          of.set(
            { labels: Object.keys(labels).length === 0 ? '' : JSON.stringify(labels) },
            { replace: true },
          );
        }}
      />
    </Field>
  );
}
