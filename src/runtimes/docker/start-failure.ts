import { RLIMIT_NAMES } from '../../sandboxes/spec/schema.js';

const MISPLACED = 'check that mounts[].guest is a directory, or for a file a file';

/** The words repeat nothing but values of the request, and paths in the sandbox. */
const FAILURES: [said: RegExp, words: string | ((match: RegExpExecArray) => string)][] = [
  [
    /^unable to find (user|group) ([\w.-]{1,64}): no matching entries in (passwd|group) file$/,
    ([, kind, name, file]) => `unable to find ${kind} ${name}: no matching entries in ${file} file`,
  ],
  [
    /error setting rlimit type (\d+): operation not permitted/,
    ([, number]) => {
      const name = RLIMIT_NAMES[Number(number)] ?? 'of a resource';
      return `the engine may not raise the limit ${name} that far: request less in rlimits`;
    },
  ],
  [
    /^(?:lstat .*: not a directory|Cannot mkdir: .* is not a directory)$/,
    'runtime.workdir is not a directory',
  ],
  [/\bchdir to cwd\b/, 'runtime.workdir cannot be entered'],
  [
    /\berror mounting .* to rootfs at "(\/(?!var\/lib\/|run\/)[^"\s]{0,200})"/,
    ([, guest]) => `a mount cannot be placed at ${guest}: ${MISPLACED}`,
  ],
  [/\berror mounting .* to rootfs at\b/, `a mount cannot be placed in the image: ${MISPLACED}`],
  [
    /^(?:Minimum memory limit|Range of CPUs)/,
    'the engine cannot give the resources that the sandbox asks for',
  ],
  [/--storage-opt/, 'the engine cannot limit the disk: leave resources.disk_size_mib out'],
  [
    /no space left on device|quota exceeded/,
    'the disk of the sandbox has no room for its patches and scripts, or that of the machine is full: ask for a larger disk, or try again later',
  ],
  [/^No such image/, 'the image was removed from this machine during the start: start again'],
];

export function explainStartFailure(message: string): string {
  for (const [said, words] of FAILURES) {
    const match = said.exec(message);
    if (match) return typeof words === 'string' ? words : words(match);
  }
  return 'the engine refused to start the sandbox; the operator finds the reason in the log of the service';
}
