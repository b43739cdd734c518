import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** What takes minutes: begun last, as small files are, it would go on alone while the other core has nothing left to do. */
const LONG = /\/(crash\/random|crash\/engine|http\/fuzz)\.test\.ts$/;

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
    sequence: { sequencer: LongFirst },
    // Two cores: more files at once only wait for each other.
    maxWorkers: 2,
    // Far more than any takes: a machine that is busy with something else makes no test fail.
    testTimeout: 180_000,
    hookTimeout: 180_000,
  },
});
