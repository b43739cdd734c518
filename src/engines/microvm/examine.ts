import { arch } from 'node:os';
import { join } from 'node:path';
import type { Examination, ExaminationContext } from '../../engine/definition.js';
import type { Finding } from '../../engine/finding.js';
import { installCommand, type HostSystem } from '../../engine/host-system.js';
import { ExplainedError } from '../../lib/explained-error.js';
import type { ValuesOf } from '../../options/option.js';
import { findKernel } from './boot/kernel.js';
import { readModules } from './boot/modules.js';
import { ControlGroups } from './control-groups.js';
import { explainNoKvm, WITHOUT_KVM } from './kvm-probe.js';
import { findProgram, KVM_DEVICE, monitorName, requireKvm, versionOf } from './machine.js';
import { explainNoGateway } from '../../machine-network/gateway/gateway-probe.js';
import { explainNoNetwork, explainNoPublishing } from './network/network-probe.js';
import type { MICROVM_OPTIONS } from './options.js';
import { DIRECTORY, sandboxesDirectory } from './places.js';
import { explainNoSharing, findFileServer } from './volumes/file-server.js';

type ExaminedOptions = Pick<ValuesOf<typeof MICROVM_OPTIONS>, 'microvmEmulation' | 'microvmKernel'>;

/** The programs beside the monitor, which make the disks of sandboxes. */
const DISK_PROGRAMS = ['qemu-img', 'mke2fs'];

/** Lets no virtual machine run. */
export async function examineMicrovm(
  options: ExaminedOptions,
  { system, dataDir, isRequired }: ExaminationContext,
): Promise<Examination> {
  const state = isRequired ? 'broken' : 'missing';
  const lacking = (found: Finding): Finding => (found.state === 'ok' ? found : { ...found, state });
  const findings = [
    examineUser(),
    await examineMonitor(system),
    examineDiskPrograms(system),
    await examineKernel(options.microvmKernel, system),
    options.microvmEmulation ? EMULATED : await examineKvm(),
  ].map(lacking);
  return {
    findings: [...findings, examineGroups(), await examineNetwork(), await examineVolumes(system)],
    diskPath: sandboxesDirectory(join(dataDir, DIRECTORY)),
  };
}

const EMULATED: Finding = {
  check: 'kvm',
  state: 'missing',
  found: 'processors are emulated (--microvm-emulation), which is slow and isolates less: only for tests',
  remedy: 'serve without --microvm-emulation on a machine with KVM',
};

function examineUser(): Finding {
  const check = 'root';
  if (process.geteuid?.() === 0) return { check, state: 'ok', found: 'this user is root' };
  return {
    check,
    state: 'missing',
    found: 'this user is not root, so monitors cannot have users of their own',
    remedy: 'sudo sandkeep install --systemd --runtime microvm',
  };
}

async function examineMonitor(system: HostSystem): Promise<Finding> {
  const check = 'monitor';
  const name = monitorName();
  if (name === undefined) {
    const found = `there is no monitor for the processor ${arch()}`;
    return { check, state: 'missing', found, remedy: 'use --runtime docker on this machine' };
  }
  const path = findProgram(name);
  if (path !== undefined) return { check, state: 'ok', found: `QEMU ${await versionOf(path)} (${path})` };
  return {
    check,
    state: 'missing',
    found: `${name} is not installed`,
    remedy: installCommand(system, 'qemu'),
  };
}

function examineDiskPrograms(system: HostSystem): Finding {
  const check = 'disk programs';
  const missing = DISK_PROGRAMS.filter((name) => findProgram(name) === undefined);
  if (missing.length === 0) return { check, state: 'ok', found: DISK_PROGRAMS.join(', ') };
  const found = `${missing.join(', ')} cannot be run, so no disk can be made`;
  return { check, state: 'missing', found, remedy: installCommand(system, 'qemu') };
}

async function examineKernel(named: string | undefined, system: HostSystem): Promise<Finding> {
  const check = 'kernel of machines';
  try {
    const kernel = await findKernel(named);
    await readModules(kernel);
    return { check, state: 'ok', found: `Linux ${kernel.release} (${kernel.path})` };
  } catch (error) {
    if (!(error instanceof ExplainedError)) throw error;
    return { check, state: 'missing', found: error.message, remedy: installCommand(system, 'guest-kernel') };
  }
}

async function examineKvm(): Promise<Finding> {
  const check = 'kvm';
  try {
    const { group } = requireKvm();
    const monitor = findProgram(monitorName() ?? '');
    const reason = monitor === undefined ? undefined : await explainNoKvm({ monitor });
    if (reason !== undefined) return { check, state: 'missing', found: reason, remedy: WITHOUT_KVM };
    const who = group === undefined ? 'every user' : `the group ${group}`;
    return { check, state: 'ok', found: `${KVM_DEVICE} is open to ${who}` };
  } catch (error) {
    if (!(error instanceof ExplainedError)) throw error;
    const [found, remedy] = error.message.split(/: (.*)/s, 2);
    return { check, state: 'missing', found: found!, remedy: remedy! };
  }
}

async function examineNetwork(): Promise<Finding> {
  const check = 'network';
  const reason = await explainNoNetwork();
  const remedy = 'docs/microvm.md has what a network needs';
  if (reason !== undefined)
    return { check, state: 'missing', found: `sandboxes have no network, because ${reason}`, remedy };
  const lacks = [
    { what: 'published ports', why: await explainNoPublishing() },
    { what: 'rules by domain, secrets and interception', why: await explainNoGateway() },
  ].flatMap(({ what, why }) => (why === undefined ? [] : [`no ${what}, because ${why}`]));
  if (lacks.length === 0) return { check, state: 'ok', found: 'sandboxes have filtered networks' };
  return {
    check,
    state: 'missing',
    found: `sandboxes have filtered networks, but ${lacks.join('; ')}`,
    remedy,
  };
}

async function examineVolumes(system: HostSystem): Promise<Finding> {
  const check = 'volumes';
  const server = await findFileServer();
  const reason = explainNoSharing(server);
  if (server && reason === undefined) {
    const found = `virtiofsd ${server.version} (${server.program})`;
    return { check, state: 'ok', found };
  }
  const remedy = server ? 'docs/microvm.md has what volumes need' : installCommand(system, 'virtiofsd');
  return { check, state: 'missing', found: `sandboxes mount no volumes, because ${reason}`, remedy };
}

function examineGroups(): Finding {
  const check = 'control groups';
  if (ControlGroups.areWritable())
    return { check, state: 'ok', found: 'CPU and memory of monitors are limited' };
  return {
    check,
    state: 'missing',
    found: 'this process may not write control groups, so CPU and memory of monitors are not limited',
    remedy: 'run the service on the machine, not in a container; or mount /sys/fs/cgroup writable',
  };
}
