const FORM = /^(\d{1,5})(?:-(\d{1,5}))?$/;
const MOST_PORT = 65_535;

export interface PortRange {
  start: number;
  end: number;
}

/** Reads `8080` or `20000-29999`. Undefined for any other text. */
export function portRange(text: string): PortRange | undefined {
  const match = FORM.exec(text);
  if (!match) return undefined;
  const start = Number(match[1]);
  const end = match[2] === undefined ? start : Number(match[2]);
  return start >= 1 && start <= end && end <= MOST_PORT ? { start, end } : undefined;
}
