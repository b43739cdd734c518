/**
 * Which of these media types an `Accept` header asks for: the one of the highest weight; of equal ones the one that is named more
 * precisely, then the one that is named first. When it asks for none of them, the first that it does not refuse: an answer of
 * another kind is of more use than none (RFC 9110, 12.5.1, leaves it to the server).
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
  // What is said of a type is what its most precise range says.
  const rated = types.map((type) => {
    const ranges = ['*/*', type.replace(/\/.*/, '/*'), type];
    const precision = ranges.findLastIndex((range) => wanted.some((one) => one.range === range));
    const place = wanted.findIndex((one) => one.range === ranges[precision]);
    return { type, precision, place, weight: wanted[place]?.weight };
  });
  const [best] = rated
    .filter(({ weight }) => weight !== undefined && weight > 0)
    .toSorted((a, b) => b.weight! - a.weight! || b.precision - a.precision || a.place - b.place);
  return (best ?? rated.find(({ weight }) => weight === undefined))?.type ?? types[0];
}
