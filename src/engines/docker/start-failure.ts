import { RLIMIT_NAMES } from '../../spec/fields/rlimits.js';

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

/**
 * The program of the engine that becomes the sandbox's first process has the limits of the sandbox already. It needs 20
 * descriptors and 200 MB of data, so a smaller limit ends it with the words that else mean a machine without room.
 */
const OWN_LIMITS: Partial<Record<string, RegExp>> = {
  data: /cannot allocate memory/,
  nofile: /too many open files|procReady not received/,
};
/** A failure to make the control group comes from the engine, before it sets the limits of the sandbox. */
const INIT_FAILED = /\bunable to start container process: (?!unable to apply cgroup)/;

/** Undefined: the start did not fail by a limit of the sandbox. */
export function explainOwnLimit(
  message: string,
  rlimits: readonly { resource: string }[],
): string | undefined {
  if (!INIT_FAILED.test(message)) return undefined;
  const resource = rlimits.find((limit) => OWN_LIMITS[limit.resource]?.test(message))?.resource;
  return (
    resource && `the limit ${resource} in rlimits is too small for the start of the sandbox: request more`
  );
}

export function explainStartFailure(message: string): string {
  for (const [said, words] of FAILURES) {
    const match = said.exec(message);
    if (match) return typeof words === 'string' ? words : words(match);
  }
  return 'the engine refused to start the sandbox; the operator finds the reason in the log of the service';
}
