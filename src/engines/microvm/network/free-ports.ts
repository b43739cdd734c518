import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { explainTaken, NO_SUCH_ADDRESS, startPublished } from '../../../machine-network/published-ports.js';
import type { PublishedPort } from '../../../spec/network-schema.js';

/**
 * Checks that no other program has the ports. The supervisor takes them a moment later: a program that is faster ends
 * it, and the start fails. Throws StartRefusedError.
 */
export async function requireFree(ports: readonly PublishedPort[]): Promise<void> {
  for (const { protocol, host_bind: host, host_port: port } of ports) {
    const open = protocol === 'tcp' ? openTcp : openUdp;
    await startPublished(
      async () => open(host, port),
      (error) => {
        const { code } = error as NodeJS.ErrnoException;
        if (code === 'EADDRINUSE') return explainTaken(`${host}:${port}`);
        if (code === 'EACCES')
          return `the service may not open the port ${host}:${port} of network.ports: the operator gives sandboxes ports from 1024 on, with --published-ports, or the service the capability CAP_NET_BIND_SERVICE`;
        return code === 'EADDRNOTAVAIL' ? NO_SUCH_ADDRESS : undefined;
      },
    );
  }
}

async function openTcp(host: string, port: number): Promise<void> {
  const server = createServer();
  server.listen({ host, port, exclusive: true });
  await once(server, 'listening');
  server.close();
  await once(server, 'close');
}

async function openUdp(host: string, port: number): Promise<void> {
  const socket = createSocket('udp4');
  socket.bind({ address: host, port, exclusive: true });
  try {
    await once(socket, 'listening');
  } finally {
    await new Promise<void>((resolve) => socket.close(resolve));
  }
}
