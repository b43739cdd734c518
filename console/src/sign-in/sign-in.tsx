import { useState } from 'preact/hooks';
import { Redirect, useLocation, useSearch } from 'wouter-preact';
import { Problem } from '../lib/api';
import { session } from '../lib/session';
import { signIn } from '../lib/sign-in';
import { CodeLines } from '../parts/copy';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

export function SignIn() {
  const to = new URLSearchParams(useSearch()).get('to') ?? '/';
  const [, go] = useLocation();
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  // Only a path of the console: an address elsewhere would make this page a redirector.
  const target = /^\/(?![/\\])/.test(to) ? to : '/';

  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    setBusy(true);
    setProblem(undefined);
    try {
      const key = new FormData(form).get('key');
      await signIn(typeof key === 'string' ? key.trim() : '');
      form.reset();
      go(target, { replace: true });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };

  if (session.value != null && problem === undefined) return <Redirect to={target} replace />;
  return (
    <main class="sign-in" id="main">
      <h1>Sandkeep</h1>
      <form onSubmit={(event) => void submit(event)}>
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
        <p>The operator of the service prints the first one:</p>
        <CodeLines text="sandkeep key create --org default --name console" of="command" />
      </details>
    </main>
  );
}
