import { existsSync, readFileSync, rmdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { ControlGroups } from '../../../src/engines/microvm/control-groups.js';
import { newId } from '../../../src/lib/uuid.js';

const isMissing = !ControlGroups.areWritable();
const reason = 'SKIPPED: this process may not write control groups (it needs root)';
if (isMissing) console.warn(`the test of weights of virtual machines is ${reason}`);

test.skipIf(isMissing)(
  `an installation with real processors leaves an emulated one its weight${isMissing ? ` — ${reason}` : ''}`,
  () => {
    const limits = { cpuMillis: 1_000, memoryMib: 64 };
    const weightOf = (groups: ControlGroups) => {
      const id = newId();
      const files = groups.make(id, limits);
      const tops = files.map((file) => dirname(dirname(dirname(file))));
      const weights = tops.flatMap((top) => [join(top, 'cpu.shares'), join(top, 'cpu.weight')]);
      const weight = Number(
        readFileSync(
          weights.find((file) => existsSync(file))!,
          'utf8',
        ),
      );
      groups.remove(id);
      onTestFinished(() => {
        for (const file of files) if (existsSync(dirname(dirname(file)))) rmdirSync(dirname(dirname(file)));
      });
      return weight;
    };
    const emulated = ControlGroups.open(newId(), { isEmulated: true })!;
    const before = weightOf(emulated);
    const hardware = ControlGroups.open(newId(), { isEmulated: false })!;
    expect(weightOf(hardware)).toBeLessThan(before);
    expect(weightOf(emulated)).toBe(before);
  },
);

test.skipIf(isMissing)(
  `a virtual machine has a weight by its processors${isMissing ? ` — ${reason}` : ''}`,
  () => {
    const groups = ControlGroups.open(newId(), { isEmulated: false })!;
    const weights = [1_000, 4_000].map((cpuMillis) => {
      const id = newId();
      const directories = groups.make(id, { cpuMillis, memoryMib: 64 }).map((file) => dirname(file));
      const files = directories.flatMap((directory) => [
        join(directory, 'cpu.shares'),
        join(directory, 'cpu.weight'),
      ]);
      const weight = Number(
        readFileSync(
          files.find((file) => existsSync(file))!,
          'utf8',
        ),
      );
      groups.remove(id);
      onTestFinished(() => {
        for (const directory of directories)
          if (existsSync(dirname(directory))) rmdirSync(dirname(directory));
      });
      return weight;
    });
    expect(weights[1]).toBe(4 * weights[0]!);
  },
);
