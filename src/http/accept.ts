/**
 * Which of these media types an `Accept` header asks for: the one of the highest weight, of equal ones the first. The first of all
 * when there is no header, or one that names none of them: an answer of another kind is of more use than none.
 */
export function preferredType<const T extends string>(
  accept: string | undefined,
  types: readonly [T, ...T[]],
): T {
  const wanted = (accept ?? '*/*').split(',').map((part) => {
    const [range = '', ...parameters] = part.split(';').map((text) => text.trim().toLowerCase());
    const weight = parameters.find((text) => text.startsWith('q='))?.slice(2);
    return { range, weight: weight === undefined ? 1 : Number(weight) || 0 };
  });
  let best = { type: types[0], weight: 0 };
  for (const type of types) {
    const exact = [type, type.replace(/\/.*/, '/*'), '*/*']
      .map((range) => wanted.find((candidate) => candidate.range === range))
      .find((candidate) => candidate !== undefined);
    if (exact && exact.weight > best.weight) best = { type, weight: exact.weight };
  }
  return best.type;
}
