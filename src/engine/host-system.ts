import { readFileSync } from 'node:fs';

type SystemKind = 'debian' | 'fedora' | 'alpine' | 'macos' | 'other';

export interface HostSystem {
  kind: SystemKind;
  /** As its makers call it. */
  name: string;
  /** The packages of the embedded PostgreSQL are linked with the GNU C library. */
  hasGlibc: boolean;
}

interface Facts {
  platform: NodeJS.Platform;
  /** The text of /etc/os-release. */
  release: string;
  glibc: string | undefined;
}

export type Part =
  'docker' | 'nftables' | 'iproute2' | 'util-linux' | 'node' | 'qemu' | 'virtiofsd' | 'guest-kernel';

const FAMILIES: Readonly<Record<string, SystemKind>> = {
  debian: 'debian',
  ubuntu: 'debian',
  fedora: 'fedora',
  rhel: 'fedora',
  centos: 'fedora',
  alpine: 'alpine',
};

const NODE_24 = {
  debian: 'curl -fsSL https://deb.nodesource.com/setup_24.x | bash - && apt-get install -y nodejs',
  fedora: 'curl -fsSL https://rpm.nodesource.com/setup_24.x | bash - && dnf install -y nodejs',
};

const COMMANDS: Readonly<Record<SystemKind, Readonly<Record<Part, string>>>> = {
  debian: {
    docker: 'apt-get install docker.io',
    nftables: 'apt-get install nftables',
    iproute2: 'apt-get install iproute2',
    'util-linux': 'apt-get install util-linux mount',
    node: NODE_24.debian,
    qemu: 'apt-get install --no-install-recommends qemu-system-x86 qemu-utils e2fsprogs',
    virtiofsd: 'apt-get install virtiofsd (Debian 12 and Ubuntu 22.04: qemu-system-common)',
    'guest-kernel': 'apt-get install linux-image-cloud-amd64 (Debian) or linux-image-virtual (Ubuntu)',
  },
  fedora: {
    docker: 'dnf install moby-engine && systemctl enable --now docker',
    nftables: 'dnf install nftables',
    iproute2: 'dnf install iproute',
    'util-linux': 'dnf install util-linux',
    node: NODE_24.fedora,
    qemu: 'dnf install qemu-system-x86-core qemu-img e2fsprogs',
    virtiofsd: 'dnf install virtiofsd',
    'guest-kernel': 'dnf install kernel-core kernel-modules',
  },
  alpine: {
    docker: 'apk add docker && rc-service docker start',
    nftables: 'apk add nftables',
    iproute2: 'apk add iproute2',
    'util-linux': 'apk add util-linux',
    node: 'apk add nodejs',
    qemu: 'apk add qemu-system-x86_64 qemu-img e2fsprogs',
    virtiofsd: 'apk add virtiofsd',
    'guest-kernel': 'apk add linux-virt',
  },
  macos: {
    docker: 'brew install --cask docker-desktop, and start it; name its socket with --docker-socket',
    nftables: 'run the service on Linux',
    iproute2: 'run the service on Linux',
    'util-linux': 'run the service on Linux',
    node: 'brew install node@24 && brew link --overwrite node@24',
    qemu: 'run the service on Linux',
    virtiofsd: 'run the service on Linux',
    'guest-kernel': 'run the service on Linux',
  },
  other: {
    docker: 'install a Docker engine (https://docs.docker.com/engine/install)',
    nftables: 'install nftables with the package manager of the system',
    iproute2: 'install iproute2 with the package manager of the system',
    'util-linux': 'install util-linux with the package manager of the system',
    node: 'install Node 24 (https://nodejs.org/en/download)',
    qemu: 'install QEMU, qemu-img and mke2fs with the package manager of the system',
    virtiofsd: 'install virtiofsd with the package manager of the system',
    'guest-kernel': 'install a kernel with virtio, erofs and overlay, and name it with --microvm-kernel',
  },
};

export function installCommand({ kind }: Pick<HostSystem, 'kind'>, part: Part): string {
  return COMMANDS[kind][part];
}

export function systemOf({ platform, release, glibc }: Facts): HostSystem {
  if (platform === 'darwin') return { kind: 'macos', name: 'macOS', hasGlibc: true };
  const fields = new Map(
    [...release.matchAll(/^(\w+)=(["']?)(.*)\2$/gm)].map(([, key, , value]) => [key, value ?? '']),
  );
  const ids = `${fields.get('ID') ?? ''} ${fields.get('ID_LIKE') ?? ''}`.split(/\s+/);
  const kind = ids.map((id) => FAMILIES[id]).find((known) => known !== undefined) ?? 'other';
  return { kind, name: fields.get('PRETTY_NAME') ?? platform, hasGlibc: glibc !== undefined };
}

export function hostSystem(): HostSystem {
  return systemOf({ platform: process.platform, release: readRelease(), glibc: glibcVersion() });
}

function readRelease(): string {
  try {
    return readFileSync('/etc/os-release', 'utf8');
  } catch {
    return '';
  }
}

function glibcVersion(): string | undefined {
  const { header } = process.report.getReport() as unknown as { header: { glibcVersionRuntime?: string } };
  return header.glibcVersionRuntime;
}
