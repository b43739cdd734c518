import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import type { WebhookResponse } from '../lib/api-types';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { FORMATS, type WebhookFormat } from './formats';

interface Asked {
  url: string;
  description: string | null;
  event_types: string[];
  format: WebhookFormat;
}

/** The fields of a new webhook, or of one that exists. */
export function EditWebhook(props: {
  of?: WebhookResponse;
  close: () => void;
  save: (asked: Asked) => Promise<void>;
}) {
  const { send, problem, isBusy } = useChange();
  const { of, close } = props;
  const submit = (event: SubmitEvent) => {
    const text = submitted(event);
    void send(() =>
      props.save({
        url: text('url'),
        description: text('description') || null,
        event_types: text('event_types')
          .split(/[\s,]+/)
          .filter((type) => type !== ''),
        format: text('format') as WebhookFormat,
      }),
    );
  };
  return (
    <Dialog title={of === undefined ? 'Create a webhook' : 'Change the webhook'} close={close}>
      <form class="form" onSubmit={submit}>
        <Field label="Address (required)" hint="Events are posted to it. It must be public, with https.">
          <input
            name="url"
            required
            autofocus
            spellcheck={false}
            placeholder="https://example.com/hooks"
            defaultValue={of?.url}
          />
        </Field>
        <Field label="Description">
          <input name="description" defaultValue={of?.description ?? ''} />
        </Field>
        <Field
          label="Event types"
          hint="Types with spaces between, or each with a ! to leave it out. None: all types."
        >
          <textarea
            name="event_types"
            rows={3}
            spellcheck={false}
            placeholder="sandbox_failed sandbox_stopped"
            defaultValue={of?.event_types.join(' ')}
          />
        </Field>
        <Field label="Format" hint="The form of each event. All have the same signature.">
          <select name="format">
            {Object.entries(FORMATS).map(([value, title]) => (
              <option key={value} value={value} selected={value === (of?.format ?? 'sandkeep')}>
                {title}
              </option>
            ))}
          </select>
        </Field>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            {of === undefined ? 'Create' : 'Save'}
          </button>
        </p>
      </form>
    </Dialog>
  );
}
