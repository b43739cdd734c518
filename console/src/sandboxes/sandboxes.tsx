import { Page } from '../parts/page';

export function Sandboxes() {
  return <Page title="Sandboxes">…</Page>;
}
