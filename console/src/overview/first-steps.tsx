import { Link } from 'wouter-preact';
import { may, session } from '../lib/session';
import { CodeLines } from '../parts/copy';
import { FIRST_LINE } from '../sandboxes/first-line';

/** For an organization without a sandbox: the next steps. */
export function FirstSteps() {
  return (
    <section class="panel" aria-labelledby="first-steps">
      <h2 id="first-steps">First steps</h2>
      <ol class="steps">
        <li>
          <Link href="/sandboxes?create=form">Create a sandbox</Link>: an isolated computer from an image. It
          has a terminal, files and a log here.
        </li>
        <Credential />
        <li>
          Send the same request from your program, with the key or the token in the variable KEY:
          <CodeLines text={FIRST_LINE} of="command" />
        </li>
      </ol>
    </section>
  );
}

/** The session of a key that creates no other one has its key already. */
function Credential() {
  if (may('keys:write')) {
    return (
      <li>
        <Link href="/keys?create=form">Create a key</Link> for your program, with the scopes that it needs.
      </li>
    );
  }
  if (session.value?.member == null) return null;
  return (
    <li>
      <Link href="/tokens">Create a personal token</Link> for your program.
    </li>
  );
}
