import { signal } from '@preact/signals';

interface Notice {
  id: number;
  text: string;
  isFault: boolean;
}

export const notices = signal<readonly Notice[]>([]);
let latest = 0;

/** Shows a sentence for a few seconds, and tells it to screen readers. */
export function announce(text: string, isFault = false): void {
  const notice = { id: ++latest, text, isFault };
  notices.value = [...notices.value, notice];
  setTimeout(() => dismiss(notice.id), isFault ? 12_000 : 5000);
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}
