import type { Scope } from '../../../src/access/scopes';
import { session } from '../lib/session';

/** In place of a page or a tab that the session does not open, such as by a link of somebody else. */
export function MissingScope({ scope }: { scope: Scope }) {
  return (
    <div class="panel fault" role="alert">
      <p class="fault-message">
        Your session does not have the scope <code>{scope}</code>, which opens this.
      </p>
      <p>
        {session.value?.member
          ? 'Ask an owner of the organization for another role.'
          : 'Sign in with a key that has the scope.'}
      </p>
    </div>
  );
}
