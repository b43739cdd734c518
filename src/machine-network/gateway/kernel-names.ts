/** The names and numbers by which rules, routes and links of the gateway refer to each other. */

/** The end of a link in the namespace of its sandbox. */
export const INNER_LINK = 'gw0';
/** A connection that the gateway decides. The routes of the sandbox know it by the mark. */
export const GATED_MARK = '0x5a';
/** The elements of a set. */
export const MOST_ELEMENTS = 16_384;

/** The set of the addresses of a rule by domain. `position`: among the rules of the direction. */
export function domainSet(position: number): string {
  return `d${position}`;
}
