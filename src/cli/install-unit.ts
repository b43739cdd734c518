import { createHash } from 'node:crypto';
import { posix } from 'node:path';
import type { EngineDefinition } from '../engine/definition.js';
import { VERSION } from '../lib/version.js';

export const ENVIRONMENT_FILE = '/etc/sandkeep/sandkeep.env';
const STATE_ROOT = '/var/lib/';
const USER = 'sandkeep';

export interface UnitOptions {
  runtime: Pick<EngineDefinition, 'name' | 'unitRights'>;
  dataDir: string;
  /** Absolute paths. */
  node: string;
  program: string;
}

/** For every runtime: they need no mount namespace of the service. */
const COMMON = `NoNewPrivileges=yes
KeyringMode=private
LockPersonality=yes
ProtectHostname=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM`;

const UNPRIVILEGED = `CapabilityBoundingSet=
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
RestrictNamespaces=yes
RuntimeDirectory=sandkeep
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
UMask=0077`;

export function unitOf(options: UnitOptions): string {
  const { runtime, dataDir, node, program } = options;
  const rights = runtime.unitRights;
  const account = rights ? '' : `User=${USER}\nGroup=${USER}\n`;
  const own = rights?.lines ?? `${UNPRIVILEGED}\nProtectHome=${homeAccess(options)}`;
  const after = ['network-online.target', ...(rights ? [rights.after] : [])].join(' ');
  return marked(`[Unit]
Description=Sandkeep, control plane for sandboxes
Documentation=https://github.com/sandkeep/sandkeep/blob/main/docs/installing.md
Wants=network-online.target
After=${after}

[Service]
Type=notify
NotifyAccess=all
ExecStart=${[node, program, 'serve', '--runtime', runtime.name, '--data-dir', dataDir].map(argument).join(' ')}
EnvironmentFile=-${ENVIRONMENT_FILE}
${account}${storageOf(options)}
WorkingDirectory=/
LimitNOFILE=65536
KillMode=mixed
Restart=on-failure
RestartSec=2
TimeoutStartSec=300
TimeoutStopSec=90

${COMMON}
${own}

[Install]
WantedBy=multi-user.target
`);
}

export function usersFile(dataDir: string): string {
  return marked(`u ${USER} - "Sandkeep" ${dataDir}\n`);
}

export function environmentFile(databaseUrl: string | undefined): string {
  const value =
    databaseUrl === undefined
      ? '#DATABASE_URL=postgres://user:password@host/database'
      : `DATABASE_URL=${environmentValue(databaseUrl)}`;
  return `# Secrets and other options of the service; docs/configuration.md has the names.
# systemd reads the file as root. After a change: systemctl restart sandkeep
${value}
#SANDKEEP_PORT=8080
`;
}

function storageOf({ runtime, dataDir }: UnitOptions): string {
  const state = dataDir.startsWith(STATE_ROOT) ? dataDir.slice(STATE_ROOT.length) : undefined;
  if (state !== undefined && /^[\w.-]+(\/[\w.-]+)*$/.test(state)) {
    return `StateDirectory=${state}\nStateDirectoryMode=0711`;
  }
  return runtime.unitRights ? '' : `ReadWritePaths=${quoted(dataDir)}`;
}

/** A hidden /home would hide a program that is installed there. */
function homeAccess({ node, program }: UnitOptions): 'yes' | 'read-only' {
  const inHome = [node, program].some((path) => /^\/(home|root|run\/user)\//.test(posix.normalize(path)));
  return inHome ? 'read-only' : 'yes';
}

/** An argument of ExecStart, where a dollar sign begins a variable. */
function argument(text: string): string {
  return quoted(text.replaceAll('$', '$$$$'));
}

/** A percent sign begins a specifier. */
function quoted(text: string): string {
  const plain = text.replaceAll('%', '%%');
  return /^[\w@%+=:,./$-]+$/.test(plain) ? plain : `"${plain.replaceAll(/["\\]/g, String.raw`\$&`)}"`;
}

function environmentValue(text: string): string {
  return `"${text.replaceAll(/["\\$`]/g, String.raw`\$&`)}"`;
}

const MARK = /^# Written by "sandkeep install" of version (\S+); sha256 ([0-9a-f]{64})\n/;

function marked(text: string): string {
  return `# Written by "sandkeep install" of version ${VERSION}; sha256 ${sha256(text)}\n${text}`;
}

/** Whether a file is as `install` wrote it, by this version or another. */
export function isUnchanged(text: string): boolean {
  const [mark, , hash] = MARK.exec(text) ?? [];
  return mark !== undefined && sha256(text.slice(mark.length)) === hash;
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
