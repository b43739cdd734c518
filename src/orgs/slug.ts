const ORG_SLUG = /^[a-z0-9]+(-[a-z0-9]+)*$/;
const LENGTH = { min: 2, max: 63 };

export const ORG_SLUG_RULE = `${LENGTH.min} to ${LENGTH.max} lower-case letters, digits and single hyphens, such as "ml-team"`;

export function isOrgSlug(text: string): boolean {
  return ORG_SLUG.test(text) && text.length >= LENGTH.min && text.length <= LENGTH.max;
}
