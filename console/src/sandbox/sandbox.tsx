import { Page } from '../parts/page';

export function Sandbox() {
  return <Page title="Sandbox">…</Page>;
}
