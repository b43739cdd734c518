import { useUrlState } from '../lib/url-state';
import { Field } from './field';

interface MomentProps {
  label: string;
  name: string;
  /** Another parameter, which a change removes. */
  clears?: string;
}

/** A time that is a parameter of the address. */
export function Moment({ label, name, clears }: MomentProps) {
  const url = useUrlState();
  const at = Date.parse(url.get(name));
  const local = Number.isNaN(at)
    ? ''
    : new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  return (
    <Field label={label}>
      <input
        type="datetime-local"
        value={local}
        onChange={({ currentTarget: { value } }) =>
          url.set({
            ...(clears === undefined ? {} : { [clears]: undefined }),
            [name]: value === '' ? '' : new Date(value).toISOString(),
          })
        }
      />
    </Field>
  );
}
