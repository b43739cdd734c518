import { describe, expect, test } from 'vitest';
import { appendLines, type LogPiece } from '../../console/src/lib/log-lines.js';
import { stateOf, stepsIn } from '../../console/src/templates/build-steps.js';

const piece = (text: string, source = 'stdout'): LogPiece => ({ source, ts: '2026-11-28T00:00:00Z', text });
const shown = (pieces: LogPiece[], isDivided: boolean, most = 10) =>
  appendLines([], pieces, { isDivided, most }).map(({ number, source, text }) => [number, source, text]);

describe('the lines of a log', () => {
  test('are the pieces, where each is a line', () => {
    expect(shown([piece('a'), piece('b\n'), piece('c')], false)).toEqual([
      [1, 'stdout', 'a'],
      [2, 'stdout', 'b\n'],
      [3, 'stdout', 'c'],
    ]);
  });

  test('are put together again, where the output is divided anywhere', () => {
    const pieces = [
      piece('one t'),
      piece('wo\nthr'),
      piece('ee\n'),
      piece('four'),
      piece('warned', 'stderr'),
    ];
    expect(shown(pieces, true)).toEqual([
      [1, 'stdout', 'one two\n'],
      [2, 'stdout', 'three\n'],
      [3, 'stdout', 'four'],
      [4, 'stderr', 'warned'],
    ]);
    const before = appendLines([], pieces.slice(0, 1), { isDivided: true, most: 10 });
    expect(appendLines(before, pieces.slice(1, 3), { isDivided: true, most: 10 })).toEqual(
      appendLines([], pieces.slice(0, 3), { isDivided: true, most: 10 }),
    );
  });

  test('are the last ones, with their numbers', () => {
    expect(shown([piece('a\nb\nc\nd\n')], true, 2)).toEqual([
      [3, 'stdout', 'c\n'],
      [4, 'stdout', 'd\n'],
    ]);
  });
});

describe('the steps of a build', () => {
  test('are those that the service names, and not those that a program prints', () => {
    const text = 'FROM busybox\nstep 1 of 2: RUN echo "step 2 of 2: x" (cached)\nstep 2 of 2: COPY . /srv\n';
    expect(stepsIn(piece(text, 'build')).map(({ number, text: title }) => [number, title])).toEqual([
      [1, 'RUN echo "step 2 of 2: x" (cached)'],
      [2, 'COPY . /srv'],
    ]);
    expect(stepsIn(piece(text))).toEqual([]);
  });

  test('are cached, done, and then in the state of the build', () => {
    const states = (status: 'building' | 'failed' | 'cancelled' | 'succeeded', steps_done: number) =>
      [1, 2, 3].map((number) => stateOf(number, { status, steps_done, steps_cached: 1 }));
    expect(states('building', 2)).toEqual(['cached', 'done', 'building']);
    expect(states('failed', 2)).toEqual(['cached', 'done', 'failed']);
    expect(states('cancelled', 1)).toEqual(['cached', 'cancelled', 'cancelled']);
    expect(states('succeeded', 3)).toEqual(['cached', 'done', 'done']);
  });
});
