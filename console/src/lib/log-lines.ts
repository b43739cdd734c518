/** A part of a log, as the service sends it. */
export interface LogPiece {
  source: string;
  ts: string;
  text: string;
}

export interface LogLine extends LogPiece {
  number: number;
}

interface AppendOptions {
  /** Pieces end anywhere. Otherwise each is a line. */
  isDivided: boolean;
  most: number;
}

/** The last lines, with the pieces behind them. A piece of another source ends a line. */
export function appendLines(
  lines: readonly LogLine[],
  pieces: readonly LogPiece[],
  { isDivided, most }: AppendOptions,
): readonly LogLine[] {
  const next = [...lines];
  for (const { source, ts, text } of pieces) {
    for (const part of isDivided ? text.split(/(?<=\n)/) : [text]) {
      const last = next.at(-1);
      if (isDivided && last?.source === source && !last.text.endsWith('\n')) {
        next[next.length - 1] = { ...last, text: last.text + part };
      } else {
        next.push({ number: (last?.number ?? 0) + 1, source, ts, text: part });
      }
    }
  }
  return next.slice(-most);
}
