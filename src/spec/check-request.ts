import { ApiError } from '../http/errors.js';
import { isUint64 } from '../http/schema.js';
import { isCidr } from '../lib/cidr.js';
import { checkLabels } from '../lib/labels.js';
import type { EngineAbilities } from './engine-abilities.js';
import { checkSize } from './check-size.js';
import { unmetRequirement } from './required-capabilities.js';
import { HOSTNAME_RULE, isHostname, isSlug, NAME_RULE, SANDBOX_NAME, SLUG_RULE } from './names.js';
import { parseImageReference } from './image-reference.js';
import type { MountRequest } from './mount-schema.js';
import { DESTINATION_FORMS_TEXT, DESTINATION_KEYS } from '../network-policy/schema.js';
import type { SecretEntry } from './secret-schema.js';
import type { CreateSandboxRequest } from './schema.js';
import { MAX_DOMAIN, MAX_PATH_BYTES, MOST } from './size-limits.js';

const MAX_SECRET_KEY = 1_024;
/** The folder of the service's own files in the guest. */
const RESERVED = '/.sandkeep/';
/** The kernel's file systems, which isolate the guest from the host. */
const KERNEL = ['/proc/', '/sys/', '/dev/'];

/** Checks the rules between fields and the abilities of the runtime. Throws the first refusal, which names the field. */
export function checkRequest(request: CreateSandboxRequest, engine: EngineAbilities): void {
  checkIdentity(request);
  checkSize(request);
  checkImage(request.image.reference);
  checkResources(request, engine);
  for (const [index, { key, secret }] of (request.env ?? []).entries()) {
    checkEnvKey(key, `env[${index}].key`);
    if (secret === true) checkSecretKey(key, `env[${index}].key`);
  }
  checkSecretCount(request.env);
  checkLimits(request, engine);
  checkInit(request);
  checkMounts(request.mounts ?? []);
  checkPatches(request);
  checkPolicy(request);
  checkSecrets(request);
  checkLifecycle(request);

  const unmet = unmetRequirement(request, engine);
  if (unmet) {
    refuse(
      unmet.field,
      `the ${engine.name} runtime cannot ${unmet.what}: ${unmet.remedy ?? `leave ${unmet.field} out, or use a runtime that can`}`,
    );
  }
}

function refuse(field: string, message: string): never {
  throw new ApiError('invalid_sandbox_config', message, { field });
}

function checkIdentity({ name, slug, labels }: CreateSandboxRequest): void {
  if (!SANDBOX_NAME.test(name)) refuse('name', NAME_RULE);
  if (slug != null && !isSlug(slug)) refuse('slug', SLUG_RULE);
  const bad = checkLabels(labels ?? {});
  if (bad) refuse(`labels.${bad.key}`, bad.message);
}

function checkImage(reference: string): void {
  if (reference === '')
    refuse('image.reference', 'image.reference must name an OCI image, such as python:3.12');
  if (!parseImageReference(reference)) {
    refuse('image.reference', 'image.reference is not an OCI image reference, such as python:3.12');
  }
}

function checkResources({ resources = {} }: CreateSandboxRequest, { name, bounds }: EngineAbilities): void {
  const { vcpus = 1, memory_mib = 512, disk_size_mib } = resources;
  if (vcpus < 1 && bounds.sharedCpuMillis === 0) {
    refuse(
      'resources.vcpus',
      'a sandbox needs at least 1 vCPU; the operator may allow 0 with --shared-cpu-millis',
    );
  }
  if (vcpus > bounds.vcpus) {
    refuse('resources.vcpus', `the ${name} runtime has ${bounds.vcpus} vCPUs for a sandbox at most`);
  }
  if (memory_mib < bounds.smallestMemoryMib || memory_mib > bounds.memoryMib) {
    refuse(
      'resources.memory_mib',
      `the ${name} runtime takes sandboxes of ${bounds.smallestMemoryMib} to ${bounds.memoryMib} MiB of memory`,
    );
  }
  if (disk_size_mib === 0) refuse('resources.disk_size_mib', 'a disk has at least 1 MiB');
}

function checkEnvKey(key: string, field: string): void {
  if (key === '' || key.includes('='))
    refuse(field, 'the name of an environment variable is not empty and has no "="');
  if (key.startsWith('MSB_')) refuse(field, 'environment variables that start with MSB_ are reserved');
}

function checkSecretCount(env: CreateSandboxRequest['env'] = []): void {
  const secrets = env.filter(({ secret }) => secret === true).length;
  if (secrets > MOST.secretEnv) refuse('env', `a sandbox has at most ${MOST.secretEnv} secret variables`);
}

/** The name is in the key of an index, whose entries have 2,700 bytes at most. */
function checkSecretKey(key: string, field: string): void {
  if (Buffer.byteLength(key) > MAX_SECRET_KEY)
    refuse(field, `the name of a secret variable has at most ${MAX_SECRET_KEY} bytes`);
}

function checkLimits(
  { rlimits = [], runtime }: CreateSandboxRequest,
  { name: engine, bounds }: EngineAbilities,
): void {
  const seen = new Set<string>();
  for (const [index, { resource, soft, hard }] of rlimits.entries()) {
    for (const [key, value] of Object.entries({ soft, hard })) {
      if (isUint64(value)) continue;
      refuse(
        `rlimits[${index}].${key}`,
        `${key} must be a whole number up to 18446744073709551615, written in digits only`,
      );
    }
    if (resource === 'nofile' && bounds.openFiles !== undefined && hard > bounds.openFiles) {
      const message = `the ${engine} runtime takes nofile limits up to ${bounds.openFiles}, which is fs.nr_open of its kernel`;
      refuse(`rlimits[${index}].hard`, message);
    }
    if (soft > hard) refuse(`rlimits[${index}].soft`, 'the soft limit must not be above the hard one');
    if (seen.has(resource)) refuse(`rlimits[${index}].resource`, `there are two limits for ${resource}`);
    seen.add(resource);
  }
  for (const name of Object.keys(runtime?.scripts ?? {})) {
    if (!/^[A-Za-z0-9._-]{1,128}$/.test(name) || name === '.' || name === '..') {
      refuse('runtime.scripts', 'the name of a script has 1 to 128 of A-Z a-z 0-9 . - _');
    }
  }
  if (runtime?.hostname != null && !isHostname(runtime.hostname)) refuse('runtime.hostname', HOSTNAME_RULE);
  if (runtime?.workdir != null && !runtime.workdir.startsWith('/')) {
    refuse('runtime.workdir', 'the working directory must be an absolute path');
  }
}

function checkInit({ init }: CreateSandboxRequest): void {
  if (init == null || init.cmd === 'auto' || init.cmd.startsWith('/')) return;
  refuse('init.cmd', 'init.cmd must be an absolute path in the guest, such as /sbin/init, or the word auto');
}

function checkMounts(mounts: MountRequest[]): void {
  const guests = new Set<string>();
  const images = new Set<string>();
  for (const [index, mount] of mounts.entries()) {
    const field = `mounts[${index}].guest`;
    checkGuestPath(mount.guest, field);
    const kernel = KERNEL.find((path) => `${mount.guest}/`.startsWith(path));
    if (kernel) refuse(field, `${field} is at or under ${kernel}, which is the kernel's`);
    if (guests.has(mount.guest)) refuse(field, `two mounts are at ${mount.guest}`);
    guests.add(mount.guest);
    if (mount.type === 'bind' || mount.type === 'disk_image')
      checkHostPath(mount.host, `mounts[${index}].host`);
    if (mount.type === 'disk_image') {
      if (images.has(mount.host)) refuse(`mounts[${index}].host`, 'two mounts are of one disk image');
      images.add(mount.host);
    }
    if ((mount.type === 'bind' || mount.type === 'named') && mount.stat_virtualization === 'off') {
      if (mount.host_permissions === 'mirror') {
        refuse(
          `mounts[${index}].host_permissions`,
          'host_permissions mirror needs stat_virtualization strict or relaxed',
        );
      }
    }
    if (mount.type === 'tmpfs' && mount.size_mib === 0) {
      refuse(`mounts[${index}].size_mib`, 'a tmpfs has at least 1 MiB');
    }
  }
}

function checkGuestPath(path: string, field: string): void {
  const normal =
    path.startsWith('/') &&
    path !== '/' &&
    !path
      .slice(1)
      .split('/')
      .some((part) => ['', '.', '..'].includes(part));
  if (!normal) refuse(field, `${field} must be an absolute, normalised path other than /`);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES)
    refuse(field, `${field} has more than ${MAX_PATH_BYTES} bytes`);
  if (/[:;,]/.test(path)) refuse(field, `${field} must not have : ; or ,`);
  if (`${path}/`.startsWith(RESERVED)) refuse(field, `${field} is under ${RESERVED}, which is reserved`);
}

function checkHostPath(path: string, field: string): void {
  if (path.split('/').includes('..'))
    refuse(field, `${field} must stay inside the host volume, without ".."`);
  if (/[:;,]/.test(path)) refuse(field, `${field} must not have : ; or ,`);
}

function checkPatches({ patches = [], mounts = [] }: CreateSandboxRequest): void {
  for (const [index, patch] of patches.entries()) {
    if (patch.type === 'copy_file' || patch.type === 'copy_dir') {
      refuse(
        `patches[${index}].src`,
        `${patch.type} names a path on your machine, which the service cannot read: send the content with a text or file patch`,
      );
    }
    const [key, path] = patch.type === 'symlink' ? ['link', patch.link] : ['path', patch.path];
    const field = `patches[${index}].${key}`;
    checkGuestPath(path, field);
    const over = mounts.find(({ guest }) => path === guest || path.startsWith(`${guest}/`));
    if (over) refuse(field, `${field} is under the mount at ${over.guest}, where patches do not reach`);
  }
}

function checkPolicy({ network }: CreateSandboxRequest): void {
  const rules = network?.policy?.rules ?? [];
  if (rules.length > MOST.rules) {
    refuse(
      'network.policy.rules',
      `a policy has at most ${MOST.rules} rules, and this one has ${rules.length}`,
    );
  }
  for (const [index, rule] of rules.entries()) {
    const { destination, ports = [], protocols = [] } = rule;
    const field = `network.policy.rules[${index}]`;
    if (ports.length > MOST.ports)
      refuse(`${field}.ports`, `a rule has at most ${MOST.ports} ranges of ports`);
    if (protocols.length > MOST.protocols) {
      refuse(`${field}.protocols`, 'a rule names each protocol at most once');
    }
    if (typeof destination === 'object') checkDomain(destination, `${field}.destination`);
    if (typeof destination === 'object') checkDestinationKeys(destination, `${field}.destination`);
    if (typeof destination === 'object' && 'cidr' in destination && !isCidr(destination.cidr)) {
      refuse(`${field}.destination.cidr`, 'cidr must be an IP address or a CIDR block, such as 10.0.0.0/8');
    }
    const reversed = ports.findIndex(({ start, end }) => start > end);
    if (reversed !== -1) refuse(`${field}.ports[${reversed}]`, 'a port range must not end before it starts');
    if (ports.length > 0 && protocols.some((protocol) => protocol.startsWith('icmp'))) {
      refuse(`${field}.ports`, 'only tcp and udp have ports: make a rule of its own for icmpv4 and icmpv6');
    }
    if (typeof destination === 'object' && 'cidr' in destination) {
      const foreign = destination.cidr.includes(':') ? 'icmpv4' : 'icmpv6';
      if (protocols.length > 0 && protocols.every((protocol) => protocol === foreign)) {
        refuse(`${field}.protocols`, `${foreign} never goes to ${destination.cidr}`);
      }
    }
  }
}

function checkDomain(destination: object, field: string): void {
  for (const [key, value] of Object.entries(destination)) {
    if (key.startsWith('domain') && String(value).length > MAX_DOMAIN) {
      refuse(`${field}.${key}`, `a domain has at most ${MAX_DOMAIN} characters`);
    }
  }
}

/** The policy compiler reads one key, so a second one would have no effect. */
function checkDestinationKeys(destination: object, field: string): void {
  const keys = Object.keys(destination);
  const unknown = keys.find((key) => !DESTINATION_KEYS.includes(key));
  if (unknown !== undefined) {
    const message = `there is no destination by "${unknown}"; there are ${DESTINATION_FORMS_TEXT}, and "any"`;
    refuse(`${field}.${unknown}`, message);
  }
  if (keys.length > 1) {
    refuse(field, `a destination has one key, not ${keys.join(' and ')}: make a rule for each`);
  }
}

function checkSecrets({ network }: CreateSandboxRequest): void {
  const { entries = [], ...ofAll } = network?.secrets ?? {};
  checkOneAction(ofAll, 'network.secrets');
  for (const [index, entry] of entries.entries()) checkSecret(entry, `network.secrets.entries[${index}]`);
}

/** Clients before and after 0.7 have names of their own for one question, which has one answer. */
function checkOneAction(
  { on_violation, violation_action }: Pick<SecretEntry, 'on_violation' | 'violation_action'>,
  field: string,
): void {
  if (on_violation == null || violation_action == null) return;
  refuse(`${field}.violation_action`, 'on_violation and violation_action exclude each other');
}

function checkSecret(entry: SecretEntry, field: string): void {
  checkOneAction(entry, field);
  if (entry.injection !== undefined && entry.substitution != null)
    refuse(`${field}.substitution`, 'injection and substitution exclude each other');
  if (entry.substitution?.headers === false && (entry.substitution.header_fields ?? []).length > 0)
    refuse(`${field}.substitution.header_fields`, 'header_fields needs headers: true');
  checkEnvKey(entry.env_var, `${field}.env_var`);
  checkSecretKey(entry.env_var, `${field}.env_var`);
  if (
    entry.placeholder === '' ||
    Buffer.byteLength(entry.placeholder) > 1024 ||
    /[\r\n]/.test(entry.placeholder)
  ) {
    refuse(`${field}.placeholder`, 'a placeholder has 1 to 1024 bytes without line breaks');
  }
  if ((entry.allowed_hosts ?? []).length === 0) {
    refuse(`${field}.allowed_hosts`, 'a secret needs at least one host that may receive it');
  }
  if (entry.source != null) {
    refuse(
      `${field}.source`,
      `a secret cannot come from ${entry.source.type === 'env' ? 'an environment variable: the service does not read its own, and yours does not reach it' : 'a secret store: there is none'}`,
    );
  }
  if (!entry.value) refuse(`${field}.value`, 'a secret needs a value');
}

function checkLifecycle({ lifecycle, runtime }: CreateSandboxRequest): void {
  if (lifecycle?.ends_with_command && !runtime?.cmd?.length) {
    refuse('lifecycle.ends_with_command', 'ends_with_command needs a command: give one in runtime.cmd');
  }
  for (const key of ['idle_timeout_secs', 'max_duration_secs'] as const) {
    if (lifecycle?.[key] === 0) refuse(`lifecycle.${key}`, `${key} is at least 1 second; null is no limit`);
  }
}
