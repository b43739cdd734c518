import { announce } from './announce';

/** Copies a text, and tells the result. `of`: the name of the text. */
export async function copyText(text: string, of: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    announce(`Copied the ${of}.`);
  } catch {
    announce('The browser refused to copy. Select the text instead.', true);
  }
}
