import { useEffect, useRef, useState } from 'preact/hooks';
import type { Problem } from './api';
import { followStream } from './event-stream';
import { appendLines, type LogLine, type LogPiece } from './log-lines';

export const MOST_LINES = 5000;
const DRAW_MS = 60;

export interface Log {
  /** The latest lines. */
  lines: readonly LogLine[];
  state: 'connecting' | 'following' | 'lost' | 'ended';
  problem: Problem | undefined;
  isPaused: boolean;
  pause: (isPaused: boolean) => void;
}

interface LogOptions {
  /** The service divides the output anywhere, and not by its lines. */
  isDivided?: boolean;
  /** Called with each piece as it arrives, also while the log is paused. */
  onPiece?: (piece: LogPiece) => void;
}

/** Follows a log until its event `end`. The address stays the same. */
export function useLog(address: string, { isDivided = false, onPiece }: LogOptions = {}): Log {
  const [lines, setLines] = useState<readonly LogLine[]>([]);
  const [state, setState] = useState<Log['state']>('connecting');
  const [problem, setProblem] = useState<Problem>();
  const [isPaused, setPaused] = useState(false);
  const paused = useRef(false);
  paused.current = isPaused;
  useEffect(() => {
    const controller = new AbortController();
    let arrived: LogPiece[] = [];
    // A program may write thousands of lines a second, and each drawing takes time.
    const timer = setInterval(() => {
      if (arrived.length === 0 || paused.current) return;
      const added = arrived;
      arrived = [];
      setLines((before) => appendLines(before, added, { isDivided, most: MOST_LINES }));
    }, DRAW_MS);
    void followStream(address, {
      signal: controller.signal,
      onOpen: () => setState('following'),
      onLost: () => setState('lost'),
      onMessage: ({ event, data }) => {
        if (event === 'end') {
          setState('ended');
          controller.abort();
          return;
        }
        const piece = JSON.parse(data) as LogPiece;
        onPiece?.(piece);
        arrived.push(piece);
        if (arrived.length > MOST_LINES) arrived.shift();
      },
    }).then(setProblem);
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }, []);
  return { lines, state, problem, isPaused, pause: setPaused };
}
