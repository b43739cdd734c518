import { SANDBOX_NAME } from '../spec/names.js';

export interface TemplateName {
  name: string;
  tag: string;
}

const PREFIX = 'template:';

/** Reads `name` or `name:tag`. Undefined for any other text. */
export function parseTemplateName(text: string): TemplateName | undefined {
  const [name = '', tag = 'latest', ...more] = text.split(':');
  if (more.length > 0 || !SANDBOX_NAME.test(name) || !SANDBOX_NAME.test(tag)) return undefined;
  return { name, tag };
}

/** Whether FROM names a template: no reference of an image begins like that and has a tag. */
export function isTemplateBase(image: string): boolean {
  return image.startsWith(PREFIX);
}

export function parseTemplateBase(image: string): TemplateName | undefined {
  return parseTemplateName(image.slice(PREFIX.length));
}
