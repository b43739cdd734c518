/** The version of this program and of its API description. A test compares it with package.json. */
export const VERSION = '0.1.0';
