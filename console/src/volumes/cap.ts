/** A cap in GiB. Null: none. */
export function capOf(text: string): number | null {
  return text === '' ? null : Number(text);
}
