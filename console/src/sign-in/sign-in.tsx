import { useState } from 'preact/hooks';
import { Redirect, useLocation, useSearch } from 'wouter-preact';
import { Problem } from '../lib/api';
import { session } from '../lib/session';
import { BASE_PATH } from '../lib/base';
import { signIn, signInByLink, signInOptions } from '../lib/sign-in';
import { useResource } from '../lib/use-resource';
import { CodeLines } from '../parts/copy';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { REFUSALS } from './refusals';

/** The code of passkeys is loaded with the first use. */
async function enterByPasskey(): Promise<void> {
  await (await import('../lib/passkeys')).signInByPasskey();
}

export function SignIn() {
  const query = new URLSearchParams(useSearch());
  const to = query.get('to') ?? '/';
  const refusal = REFUSALS.get(query.get('problem') ?? '');
  const options = useResource('sign-in-options', signInOptions);
  const { provider, passkeys } = options.data ?? { provider: null, passkeys: false };
  const [, go] = useLocation();
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  // Only a path of the console: an address elsewhere would make this page a redirector.
  const target = /^\/(?![/\\])/.test(to) ? to : '/';

  const enter = async (open: () => Promise<void>, then = target) => {
    setBusy(true);
    setProblem(undefined);
    try {
      await open();
      go(then, { replace: true });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };

  const addressOfProvider = `${BASE_PATH}/console/sign-in/provider?to=${encodeURIComponent(target)}`;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const key = new FormData(form).get('key');
    void enter(async () => {
      await signIn(typeof key === 'string' ? key.trim() : '');
      form.reset();
    });
  };

  const link = location.hash.slice(1);
  if (link.startsWith('ski_') && provider !== null) {
    return (
      <main class="sign-in" id="main">
        <h1>Sandkeep</h1>
        <p>You are invited to an organization. Sign in with the invited address.</p>
        <p>
          <a class="button primary" href={`${addressOfProvider}&invitation=${encodeURIComponent(link)}`}>
            Sign in with {provider.name}
          </a>
        </p>
      </main>
    );
  }
  // Without a provider the link is enough.
  if (link.startsWith('skl_') || (link.startsWith('ski_') && options.data !== undefined)) {
    return (
      <main class="sign-in" id="main">
        <h1>Sandkeep</h1>
        <p>This link opens one session of the person that it was made for.</p>
        <button
          type="button"
          class="primary"
          disabled={isBusy}
          // The link works once: the account has the way to sign in again.
          onClick={() => void enter(() => signInByLink(link), passkeys ? '/account' : target)}
        >
          Sign in
        </button>
        {problem !== undefined && <ErrorPanel problem={problem} />}
      </main>
    );
  }
  if (session.value != null && problem === undefined) return <Redirect to={target} replace />;
  return (
    <main class="sign-in" id="main">
      <h1>Sandkeep</h1>
      {refusal !== undefined && (
        <div class="panel fault" role="alert">
          <p class="fault-message">{refusal}</p>
          <p>
            Request <code>{query.get('request')}</code>
          </p>
        </div>
      )}
      {provider !== null && (
        <p>
          <a class="button primary" href={addressOfProvider}>
            Sign in with {provider.name}
          </a>
        </p>
      )}
      {passkeys && (
        <p>
          <button type="button" disabled={isBusy} onClick={() => void enter(enterByPasskey)}>
            Use a passkey
          </button>
        </p>
      )}
      <form onSubmit={submit}>
        <Field
          label="API key"
          hint="The browser keeps a session that ends with the key. It never keeps the key."
        >
          <input name="key" type="password" required autofocus autocomplete="off" spellcheck={false} />
        </Field>
        <button type="submit" class="primary" disabled={isBusy}>
          Sign in
        </button>
      </form>
      {problem !== undefined && <ErrorPanel problem={problem} />}
      <details>
        <summary>How do I get a key?</summary>
        <p>The operator of the service prints the first one, or a link for a member:</p>
        <CodeLines
          text={
            'sandkeep key create --org default --name console\nsandkeep member link --org default NAME@EXAMPLE.COM'
          }
          of="command"
        />
      </details>
    </main>
  );
}
