import { useEffect } from 'preact/hooks';
import { Redirect, Route, Router, Switch, useLocation, useSearch } from 'wouter-preact';
import { Layout } from './layout/layout';
import { BASE_PATH } from './lib/base';
import { Lazy } from './lib/lazy';
import { may, session } from './lib/session';
import { resumeSession } from './lib/sign-in';
import { useResource } from './lib/use-resource';
import { PAGES } from './pages';
import { MissingScope } from './parts/missing-scope';
import { ErrorPanel } from './parts/error-panel';
import { ConfirmHost } from './parts/confirm';
import { Notices } from './parts/notices';
import { Page } from './parts/page';
import { SignIn } from './sign-in/sign-in';

export function App() {
  return (
    <Router base={`${BASE_PATH}/console`}>
      <Switch>
        <Route path="/sign-in">
          <SignIn />
        </Route>
        <Route>
          <SignedIn />
        </Route>
      </Switch>
      <ConfirmHost />
      <Notices />
    </Router>
  );
}

function SignedIn() {
  const [path] = useLocation();
  const search = useSearch();
  const resumed = useResource('session', async () => {
    if (session.value == null) await resumeSession();
    return true;
  });
  const { problem } = resumed;
  const isUnreachable = problem !== undefined && problem.status !== 401;
  useEffect(() => {
    if (session.value != null && problem !== undefined) resumed.reload();
  }, [problem]);
  if (session.value === null) {
    const here = `${path}${search === '' ? '' : `?${search}`}`;
    return <Redirect to={`/sign-in?to=${encodeURIComponent(here)}`} replace />;
  }
  if (session.value === undefined) {
    return isUnreachable ? <ErrorPanel problem={problem} retry={resumed.reload} /> : null;
  }
  // The list of sandboxes was at the root, and its links have filters.
  if (path === '/' && search !== '') return <Redirect to={`/sandboxes?${search}`} replace />;
  return (
    <Layout>
      <Switch>
        {PAGES.map(({ path, title, scope, load }) => (
          <Route key={path} path={path}>
            {scope === undefined || may(scope) ? (
              <Lazy key={path} load={load} />
            ) : (
              <Page title={title}>
                <MissingScope scope={scope} />
              </Page>
            )}
          </Route>
        ))}
        <Route>
          <Page title="No such page">
            <p>There is no page at this address.</p>
          </Page>
        </Route>
      </Switch>
    </Layout>
  );
}
