import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { BASE_PATH } from '../lib/base';
import { connection } from '../lib/connection';
import { GROUPS, listedPages } from '../pages';
import { Account } from './account';
import { CommandPalette } from './command-palette';

export function Layout({ children }: { children: ComponentChildren }) {
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
    <div class="frame">
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <header class="side">
        <Link href="/" class="brand">
          <Mark />
          Sandkeep
        </Link>
        <button
          type="button"
          class="commands-button"
          onClick={() => setPaletteOpen(true)}
          aria-keyshortcuts="Control+K Meta+K"
        >
          Commands <kbd>Ctrl K</kbd>
        </button>
        <Navigation />
        <a class="reference" href={`${BASE_PATH}/docs/`}>
          API reference
        </a>
        <Account />
      </header>
      <div class="content">
        {connection.value === 'lost' && (
          <p class="banner" role="alert">
            The service does not answer. The page shows its last state, and continues by itself.
          </p>
        )}
        <main id="main" tabIndex={-1}>
          {children}
        </main>
      </div>
      {isPaletteOpen && <CommandPalette close={() => setPaletteOpen(false)} />}
    </div>
  );
}

function Navigation() {
  const [path] = useLocation();
  const listed = listedPages();
  const groups = GROUPS.filter((group) => listed.some((page) => page.group === group));
  return (
    <nav aria-label="Pages of the console">
      {groups.map((group) => (
        <div key={group} class="nav-group">
          {group !== '' && (
            <span class="nav-heading" aria-hidden="true">
              {group}
            </span>
          )}
          {listed
            .filter((page) => page.group === group)
            .map((page) => (
              <Link key={page.path} href={page.path} aria-current={placeOf(path, page.path)}>
                {page.title}
              </Link>
            ))}
        </div>
      ))}
    </nav>
  );
}

/** The page of one sandbox, for example, is below the list of sandboxes. */
function placeOf(path: string, listed: string): 'page' | 'true' | undefined {
  if (path === listed) return 'page';
  return listed !== '/' && path.startsWith(`${listed}/`) ? 'true' : undefined;
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" />
      <path d="M7 24V12h4v3h3v-3h4v3h3v-3h4v12z" />
    </svg>
  );
}
