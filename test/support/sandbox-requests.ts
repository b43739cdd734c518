/** A create request with every field and every variant. */
export function fullRequest(name: string, volume: string) {
  const options = { readonly: true, noexec: true, nosuid: true, nodev: true };
  return {
    name,
    slug: `${name}-slug`,
    image: { type: 'oci', reference: 'registry.example.com:5000/team/app:1.2@sha256:' + 'a'.repeat(64) },
    resources: { vcpus: 2, memory_mib: 1024, disk_size_mib: 4096 },
    runtime: {
      cmd: ['serve', '--all'],
      entrypoint: ['/bin/app'],
      user: '1000:1000',
      workdir: '/srv',
      shell: '/bin/sh',
      scripts: { setup: '#!/bin/sh\necho setup' },
      log_level: 'debug',
    },
    env: [
      { key: 'A', value: '1' },
      { key: 'B', value: '' },
      { key: 'A', value: '2' },
    ],
    labels: { team: 'ml', gpu: '' },
    rlimits: [
      { resource: 'nofile', soft: 1024, hard: 4096 },
      { resource: 'as', soft: 0, hard: Number.MAX_SAFE_INTEGER },
    ],
    mounts: [
      {
        type: 'bind',
        host: './src',
        guest: '/mnt/bind',
        options,
        stat_virtualization: 'relaxed',
        host_permissions: 'mirror',
        quota_mib: 10,
      },
      {
        type: 'named',
        name: volume,
        guest: '/mnt/named',
        options: {},
        stat_virtualization: 'off',
        host_permissions: 'private',
      },
      { type: 'tmpfs', guest: '/mnt/tmpfs', size_mib: 64, options },
      {
        type: 'disk_image',
        host: 'disk.qcow2',
        guest: '/mnt/disk',
        format: 'qcow2',
        fstype: 'ext4',
        options: {},
      },
    ],
    patches: [
      { type: 'text', path: '/etc/app.conf', content: 'x', mode: 0o644, replace: true },
      { type: 'file', path: '/etc/blob', content: [0, 255], replace: false },
      { type: 'symlink', target: '/etc/app.conf', link: '/etc/link', replace: true },
      { type: 'mkdir', path: '/var/app' },
      { type: 'remove', path: '/etc/motd' },
      { type: 'append', path: '/etc/hosts', content: '127.0.0.1 app' },
    ],
    network: {
      enabled: true,
      strict: true,
      max_connections: 100,
      policy: {
        default_egress: 'deny',
        default_ingress: 'allow',
        rules: [
          { direction: 'egress', destination: 'any', action: 'allow' },
          {
            direction: 'egress',
            destination: { cidr: '198.51.100.5/32' },
            action: 'deny',
            protocols: ['tcp', 'udp'],
          },
          {
            direction: 'ingress',
            destination: { domain: 'example.com' },
            action: 'deny',
            ports: [{ start: 1, end: 2 }],
          },
          {
            direction: 'any',
            destination: { domain_suffix: 'example.org' },
            action: 'allow',
            protocols: ['icmpv4', 'icmpv6'],
          },
          { direction: 'egress', destination: { group: 'metadata' }, action: 'deny' },
        ],
      },
      secrets: {
        entries: [
          {
            env_var: 'TOKEN',
            placeholder: '$MSB_TOKEN',
            value: 'canary-value',
            allowed_hosts: [
              { type: 'exact', value: 'api.example.com' },
              { type: 'wildcard', value: '*.example.com' },
              { type: 'any' },
            ],
            injection: { body: true },
            on_violation: { type: 'passthrough', hosts: [{ type: 'any' }] },
          },
        ],
        on_violation: { type: 'block_and_log' },
      },
    },
    init: { cmd: 'auto', args: ['-x'], env: [['K', 'V']] },
    pull_policy: 'always',
    security_profile: 'restricted',
    lifecycle: { ephemeral: false, idle_timeout_secs: 600, max_duration_secs: 3600 },
    registry: { mode: 'inline', username: 'robot', password: 'canary-password' },
  };
}

export function smallRequest(name: string, more: Record<string, unknown> = {}) {
  return { name, image: { type: 'oci', reference: 'busybox' }, ...more };
}
