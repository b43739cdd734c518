import type { Command } from 'commander';

const ON = ['1', 'true', 'yes', 'on'];
const OFF = ['0', 'false', 'no', 'off', ''];

/** Commander takes a flag to be given where its variable is there at all, with `false` in it, too: here the word is read. */
export function readFlags(command: Command): void {
  for (const option of command.options) {
    const name = option.attributeName();
    const { envVar } = option;
    if (!option.isBoolean() || envVar === undefined || command.getOptionValueSource(name) !== 'env') continue;
    const word = (process.env[envVar] ?? '').trim().toLowerCase();
    if (ON.includes(word)) continue;
    if (!OFF.includes(word)) {
      command.error(
        `error: option '${option.flags}' value '${word}' from env '${envVar}' is invalid. It must be true or false.`,
      );
    }
    command.setOptionValueWithSource(name, undefined, 'env');
  }
}
