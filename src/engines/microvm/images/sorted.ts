const RUN = 2_000;

/** Sorts texts by their units of 16 bits. A step of the generator is short, however many there are. */
export function* sorted(texts: readonly string[]): Generator<void, string[]> {
  let runs: string[][] = [];
  for (let at = 0; at < texts.length; at += RUN) {
    runs.push(texts.slice(at, at + RUN).toSorted());
    yield;
  }
  while (runs.length > 1) {
    const merged: string[][] = [];
    for (let index = 0; index < runs.length; index += 2) {
      merged.push(yield* mergedRun(runs[index]!, runs[index + 1] ?? []));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

function* mergedRun(left: readonly string[], right: readonly string[]): Generator<void, string[]> {
  const merged: string[] = [];
  let [fromLeft, fromRight] = [0, 0];
  while (fromLeft < left.length || fromRight < right.length) {
    const isLeft =
      fromRight === right.length || (fromLeft < left.length && left[fromLeft]! < right[fromRight]!);
    merged.push(isLeft ? left[fromLeft++]! : right[fromRight++]!);
    if (merged.length % RUN === 0) yield;
  }
  return merged;
}
