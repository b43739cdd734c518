import type { ComponentChildren } from 'preact';
import { CodeLines } from './copy';
import { Dialog } from './dialog';

/** A secret that the service shows once. It is gone when the dialog closes. */
export function SecretDialog(props: {
  title: string;
  of: string;
  secret: string | null;
  close: () => void;
  children?: ComponentChildren;
}) {
  return (
    <Dialog title={props.title} close={props.close} wide>
      {props.secret === null ? (
        <p>The service does not show this secret again. Rotate it to get another.</p>
      ) : (
        <>
          <p>Store it now. It is shown only once, and this page does not keep it.</p>
          <CodeLines text={props.secret} of={props.of} />
          {props.children}
        </>
      )}
      <p class="actions">
        <button type="button" onClick={props.close}>
          I have stored it
        </button>
      </p>
    </Dialog>
  );
}
