export interface ConnectionProblem {
  kind: 'denied' | 'stopped' | 'absent';
  reason: string;
  remedy: string;
}

export function explainConnectionError(error: unknown, socket: string): ConnectionProblem {
  const { code, message } = error as NodeJS.ErrnoException;
  switch (code) {
    case 'EACCES':
    case 'EPERM':
      return {
        kind: 'denied',
        reason: `this user may not connect to the Docker engine on ${socket} (${code})`,
        remedy:
          'Run the service as root, or add its user to the group that owns the socket ("usermod -aG docker USER")',
      };
    case 'ECONNREFUSED':
      return {
        kind: 'stopped',
        reason: `no Docker engine answers on ${socket} (${message})`,
        remedy: 'Start the engine ("systemctl start docker")',
      };
    default:
      return {
        kind: 'absent',
        reason: `no Docker engine answers on ${socket} (${message})`,
        remedy: 'On Debian: apt-get install docker.io',
      };
  }
}
