import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** These files take longest. A run starts them first, so that no core idles at its end. */
const LONG =
  /\/((crash|db|neighbours|package)\/[\w-]+|http\/fuzz|clients\/docker|cli\/commands|console\/(audit|sandbox|sandboxes)|deploy\/rolling-restart|docs\/operations|engines\/full-disk|engines\/microvm-[\w-]+|engines\/docker-(gateway|guest|hanging|network|network-domains|network-recovery|preview-programs|published-ports|trust|volume-caps))(\.slow)?\.test\.ts$/;

class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- not of an array
    const sorted = await super.sort(files);
    const isLong = ({ moduleId }: TestSpecification) => LONG.test(moduleId);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    setupFiles: ['test/support/each-file.ts'],
    sequence: { sequencer: LongFirst },
    // Files share processes: a process loads the service and compiles its schemas once, which takes two seconds.
    isolate: false,
    // Two cores, and half of a file's time is waiting.
    maxWorkers: 4,
    // They only end what hangs. Services, containers, browsers and emulated processors on a busy machine have taken three minutes for
    // what takes ten seconds on a quiet one.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    // The default is one second.
    expect: { poll: { timeout: 300_000 } },
  },
});
