import { blocksEverything } from '../../network-policy/order.js';
import type { RunSecrets, RunSpec } from '../../spec/run-spec.js';
import { withBase64 } from '../../spec/file-patches.js';
import { requiredCapabilities } from '../../spec/required-capabilities.js';
import { withVolumes, type MountVolumes } from './mount-volumes.js';
import { lastOfEachKey, MASKED, withoutSecrets } from '../../spec/env-schema.js';
import type { MountRequest, SandboxMount } from '../../spec/mount-schema.js';
import { showSecrets } from '../../spec/show-secrets.js';
import type { CreateSandboxRequest, SandboxSpec } from '../../spec/schema.js';

type Rlimit = SandboxSpec['rlimits'][number];
type DiskImage = Extract<SandboxMount, { type: 'DiskImage' }>;

/** Fills in the defaults, and makes the specification for the runtime and the one for callers. Neither has secret values. */
export function resolve(
  request: CreateSandboxRequest,
  volumes: MountVolumes,
): { runSpec: RunSpec; spec: SandboxSpec } {
  const { image, resources = {}, runtime = {}, network = {}, lifecycle = {} } = request;
  const env = lastOfEachKey(request.env ?? []);
  const labels = request.labels ?? {};
  const rlimits = request.rlimits ?? [];
  const mounts = request.mounts ?? [];
  const vcpus = resources.vcpus ?? 1;
  const memoryMib = resources.memory_mib ?? 512;
  const diskMib = resources.disk_size_mib ?? null;
  const cmd = runtime.cmd ?? null;
  const entrypoint = runtime.entrypoint ?? null;
  const user = runtime.user ?? null;
  const workdir = runtime.workdir ?? null;
  const shell = runtime.shell ?? null;
  const scripts = runtime.scripts ?? {};
  const networkEnabled = network.enabled ?? true;
  const networkPolicy = network.policy ?? null;
  const hostname = runtime.hostname ?? null;
  const idleTimeoutSecs = lifecycle.idle_timeout_secs ?? null;
  const maxDurationSecs = lifecycle.max_duration_secs ?? null;
  const endsWithCommand = lifecycle.ends_with_command ?? false;

  return {
    runSpec: {
      image: image.reference,
      pullPolicy: request.pull_policy ?? 'if_missing',
      vcpus,
      memoryMib,
      diskMib,
      cmd,
      entrypoint,
      user,
      workdir,
      shell,
      scripts,
      env: withoutSecrets(env, ''),
      labels,
      rlimits,
      mounts: withVolumes(mounts, volumes),
      patches: withBase64(request.patches ?? []),
      init: request.init ?? null,
      securityProfile: request.security_profile ?? 'default',
      networkEnabled: networkEnabled && !(networkPolicy && blocksEverything(networkPolicy)),
      networkPolicy,
      hostname,
      endsWithCommand,
      idleTimeoutSecs,
      maxDurationSecs,
      demands: [...new Set(requiredCapabilities(request).map(({ capability }) => capability))],
    },
    spec: {
      image: image.reference,
      resources: { vcpus, memory_mib: memoryMib, disk_size_mib: diskMib },
      runtime: {
        cmd,
        entrypoint,
        hostname,
        user,
        workdir,
        shell,
        scripts,
        log_level: runtime.log_level ?? null,
        metrics_sample_interval_ms:
          runtime.metrics_sample_interval_ms === undefined ? 1000 : runtime.metrics_sample_interval_ms,
        disable_metrics_sample: runtime.disable_metrics_sample ?? false,
      },
      env: withoutSecrets(env, MASKED),
      labels,
      rlimits: rlimits.map(({ resource, soft, hard }) => ({
        resource: capitalized(resource) as Rlimit['resource'],
        soft,
        hard,
      })),
      lifecycle: {
        ephemeral: lifecycle.ephemeral ?? false,
        idle_timeout_secs: idleTimeoutSecs,
        max_duration_secs: maxDurationSecs,
        ...(endsWithCommand ? { ends_with_command: true } : {}),
      },
      mounts: mounts.map(showMount),
      network: {
        enabled: networkEnabled,
        ports: network.ports ?? [],
        trust_host_cas: false,
        max_connections: network.max_connections ?? null,
        ...(network.max_udp_connections ? { max_udp_connections: network.max_udp_connections } : {}),
        policy: networkPolicy,
        ...(network.tls == null ? {} : { tls: network.tls }),
        secrets: showSecrets(network.secrets ?? {}),
      },
    },
  };
}

/** The secrets of a request, which are sealed before they are stored. */
export function secretsOf({ registry, network, env = [] }: CreateSandboxRequest): RunSecrets {
  const entries = network?.secrets?.entries ?? [];
  return {
    registry:
      registry?.mode === 'inline' ? { username: registry.username, password: registry.password } : null,
    values: Object.fromEntries(entries.map(({ env_var, value }) => [env_var, value ?? ''])),
    env: Object.fromEntries(
      lastOfEachKey(env).flatMap(({ key, value, secret }) => (secret === true ? [[key, value]] : [])),
    ),
  };
}

function showMount(mount: MountRequest): SandboxMount {
  const { guest } = mount;
  const { nodev = false, noexec = false, nosuid = false, readonly = false } = mount.options ?? {};
  const options = { nodev, noexec, nosuid, readonly };
  switch (mount.type) {
    case 'bind':
      return { type: 'Bind', guest, options, ...sharingOf(mount), quota_mib: mount.quota_mib ?? null };
    case 'named':
      return { type: 'Named', name: mount.name, guest, options, ...sharingOf(mount) };
    case 'tmpfs':
      return { type: 'Tmpfs', guest, options, size_mib: mount.size_mib ?? null };
    case 'disk_image': {
      const format = capitalized(mount.format) as DiskImage['format'];
      return { type: 'DiskImage', guest, format, options, fstype: mount.fstype ?? null };
    }
  }
}

function sharingOf(mount: Extract<MountRequest, { type: 'bind' | 'named' }>) {
  return {
    stat_virtualization: mount.stat_virtualization ?? ('strict' as const),
    host_permissions: mount.host_permissions ?? ('private' as const),
  };
}

/** Requests have `nofile` and `qcow2`, answers `Nofile` and `Qcow2`. */
function capitalized(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
