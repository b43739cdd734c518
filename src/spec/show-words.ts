/** Requests have `nofile` and `qcow2`, answers `Nofile` and `Qcow2`. */
export function capitalized<Word extends string>(word: Word): Capitalize<Word> {
  return (word.charAt(0).toUpperCase() + word.slice(1)) as Capitalize<Word>;
}
