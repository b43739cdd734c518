import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { announce } from '../lib/announce';
import { Problem } from '../lib/api';
import { BASE_PATH } from '../lib/base';
import { connection } from '../lib/connection';
import { theme, timeZone } from '../lib/preferences';
import { session } from '../lib/session';
import { signOut } from '../lib/sign-in';
import { PAGES } from '../pages';
import { Time } from '../parts/time';
import { CommandPalette } from './command-palette';

export function Layout({ children }: { children: ComponentChildren }) {
  const [path] = useLocation();
  const [isPaletteOpen, setPaletteOpen] = useState(false);
  useEffect(() => {
    const open = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== 'k' || !(event.metaKey || event.ctrlKey)) return;
      event.preventDefault();
      setPaletteOpen(true);
    };
    addEventListener('keydown', open);
    return () => removeEventListener('keydown', open);
  }, []);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <header class="top">
        <Link href="/" class="brand">
          Sandkeep
        </Link>
        <nav aria-label="Pages of the console">
          {PAGES.filter(({ isListed }) => isListed).map((page) => (
            <Link key={page.path} href={page.path} aria-current={placeOf(path, page.path)}>
              {page.title}
            </Link>
          ))}
        </nav>
        <div class="top-end">
          <button
            type="button"
            class="quiet"
            onClick={() => setPaletteOpen(true)}
            aria-keyshortcuts="Control+K Meta+K"
          >
            Commands <kbd>Ctrl K</kbd>
          </button>
          <Account />
        </div>
      </header>
      {connection.value === 'lost' && (
        <p class="banner" role="alert">
          The service does not answer. The page shows its last state, and continues by itself.
        </p>
      )}
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      {isPaletteOpen && <CommandPalette close={() => setPaletteOpen(false)} />}
    </>
  );
}

/** The page of one sandbox, for example, is below the list of sandboxes, whose path is the root. */
function placeOf(path: string, listed: string): 'page' | 'true' | undefined {
  if (path === listed) return 'page';
  return path.startsWith(listed === '/' ? '/sandboxes/' : `${listed}/`) ? 'true' : undefined;
}

function Account() {
  const leave = () =>
    signOut().catch((error: unknown) => {
      if (error instanceof Problem) announce(error.message, true);
    });
  return (
    <details class="menu">
      <summary>{session.value?.key.organization.name}</summary>
      <div class="menu-body">
        <p>
          Signed in with the key <b>{session.value?.key.name}</b>
          <br />
          until <Time at={session.value?.expires_at} />
        </p>
        <label>
          Colours{' '}
          <select
            value={theme.value}
            onChange={({ currentTarget }) => (theme.value = currentTarget.value as typeof theme.value)}
          >
            <option value="system">of the system</option>
            <option value="light">light</option>
            <option value="dark">dark</option>
          </select>
        </label>
        <label>
          Times{' '}
          <select
            value={timeZone.value}
            onChange={({ currentTarget }) => (timeZone.value = currentTarget.value as typeof timeZone.value)}
          >
            <option value="local">local</option>
            <option value="utc">UTC</option>
          </select>
        </label>
        <a href={`${BASE_PATH}/docs/`}>API reference</a>
        <button type="button" onClick={() => void leave()}>
          Sign out
        </button>
      </div>
    </details>
  );
}
