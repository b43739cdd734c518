import type { Command } from 'commander';

const ON = new Set(['1', 'true', 'yes', 'on']);
const OFF = new Set(['0', 'false', 'no', 'off', '']);

/** Commander takes a flag to be given where its variable is there at all, with `false` in it, too: here the word is read. */
export function readFlags(command: Command, env: NodeJS.ProcessEnv): void {
  for (const option of command.options) {
    const name = option.attributeName();
    const { envVar } = option;
    if (!option.isBoolean() || envVar === undefined || command.getOptionValueSource(name) !== 'env') continue;
    const word = (env[envVar] ?? '').trim().toLowerCase();
    if (ON.has(word)) continue;
    if (!OFF.has(word)) {
      command.error(
        `error: option '${option.flags}' value '${word}' from env '${envVar}' is invalid. It must be true or false.`,
      );
    }
    command.setOptionValueWithSource(name, undefined, 'env');
  }
}
