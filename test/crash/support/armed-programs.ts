import { chmodSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The moments of a program that the service runs. `before`, `middle`, `after`: it kills the service, and ends without a
 * part of its work. `waits`: it works once the test says so. `arms`: it works, and qemu-img kills the service after its
 * next work.
 */
type Moment = 'before' | 'middle' | 'after' | 'waits' | 'arms';

/** A question for the version is no work. */
const PROGRAM = (real: string, file: (program: string) => string, armed: string) => `#!/bin/bash
[ "$1" != --version ] || exec ${real} "$@"
moment=$(cat ${armed} 2>/dev/null)
case "$moment" in waits) : ;; *) rm -f ${armed} ;; esac
case "$moment" in
  before) kill -9 $PPID ;;
  middle) head -c 100000 "\${@: -2:1}" > "\${@: -1}"; kill -9 $PPID ;;
  after) ${real} "$@"; kill -9 $PPID ;;
  waits) : > ${armed}-reached; while [ -e ${armed} ]; do sleep 0.05; done; exec ${real} "$@" ;;
  arms) echo after > ${file('qemu-img')}; exec ${real} "$@" ;;
  *) exec ${real} "$@" ;;
esac
`;

const REAL = { cp: '/bin/cp', 'qemu-img': '/usr/bin/qemu-img' };
type Program = keyof typeof REAL;

/** Programs of virtual machines that kill their service at a moment. The folder is that of the test. */
export class ArmedPrograms {
  constructor(private readonly folder: string) {
    mkdirSync(join(folder, 'bin'));
    for (const [name, real] of Object.entries(REAL)) {
      const program = join(folder, 'bin', name);
      writeFileSync(
        program,
        PROGRAM(real, (other) => this.armed(other), this.armed(name)),
      );
      chmodSync(program, 0o755);
    }
  }

  /** The command line to put in front of the service. */
  get under(): readonly string[] {
    return ['env', `PATH=${join(this.folder, 'bin')}:${process.env['PATH'] ?? ''}`];
  }

  arm(program: Program, moment: Moment): void {
    rmSync(`${this.armed(program)}-reached`, { force: true });
    writeFileSync(this.armed(program), moment);
  }

  isWaiting(program: Program): boolean {
    return existsSync(`${this.armed(program)}-reached`);
  }

  release(program: Program): void {
    rmSync(this.armed(program));
  }

  private armed(program: string): string {
    return join(this.folder, `armed-${program}`);
  }
}
