import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { ExplainedError } from '../../src/lib/explained-error.js';
import { sleep } from '../../src/lib/sleep.js';

export interface Nginx {
  pid: number;
  port: number;
  stop(): Promise<void>;
}

/** nginx as a reverse proxy in front of one server. It uses connections to that server again, as previews do. */
export async function startNginx(directory: string, target: string): Promise<Nginx> {
  const port = await freePort();
  const files = join(directory, 'nginx');
  mkdirSync(files);
  const configuration = join(files, 'nginx.conf');
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${files}/${name};`)
    .join('\n  ');
  writeFileSync(
    configuration,
    `
daemon off; pid ${files}/pid; error_log stderr error; worker_processes auto;
events { worker_connections 1024; }
http {
  access_log off;
  ${temporary}
  upstream sandbox { server ${target}; keepalive 64; }
  server {
    listen 127.0.0.1:${port};
    keepalive_requests 1000000;
    location / {
      proxy_pass http://sandbox;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_buffering off;
    }
  }
}
`,
  );
  const child = spawn('nginx', ['-c', configuration, '-p', files, '-e', 'stderr'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  await once(child, 'spawn').catch((cause: unknown) => {
    throw new ExplainedError(
      'the bench compares with nginx: install it (on Debian: apt-get install nginx-light)',
      {
        cause,
      },
    );
  });
  const ended = once(child, 'exit');
  for (let tries = 0; tries < 100 && !(await answers(port)); tries += 1) await sleep(20);
  const stop = async () => {
    child.kill('SIGQUIT');
    await ended;
  };
  return { pid: child.pid!, port, stop };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

async function answers(port: number): Promise<boolean> {
  return fetch(`http://127.0.0.1:${port}/small`).then(
    ({ ok }) => ok,
    () => false,
  );
}
