import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './folders.ts';
import { freePort, startChild } from './process.ts';

const NGINX = '/usr/sbin/nginx';

/** nginx on loopback as a plain HTTP proxy to the upstream, without a tunnel; null if not installed. */
export async function startNginx(upstreamPort: number): Promise<{ port: number; stop(): Promise<void> } | null> {
  if (!existsSync(NGINX)) return null;
  const folder = temporaryFolder();
  const port = await freePort();
  writeFileSync(join(folder, 'nginx.conf'), config(folder, port, upstreamPort));
  const command = `${NGINX} -p ${folder} -c ${folder}/nginx.conf -e stderr 2>&1`;
  const started = (line: string) => (line.includes('start worker process ') ? true : undefined);
  const child = await startChild('sh', ['-c', `exec ${command}`], {}, started);
  return { port, stop: () => child.stop() };
}

function config(folder: string, port: number, upstreamPort: number): string {
  return `
    daemon off;
    worker_processes 1;
    pid ${folder}/pid;
    error_log stderr notice;
    events { worker_connections 1024; }
    http {
      access_log off;
      client_body_temp_path ${folder}/body;
      proxy_temp_path ${folder}/proxy;
      fastcgi_temp_path ${folder}/fastcgi;
      uwsgi_temp_path ${folder}/uwsgi;
      scgi_temp_path ${folder}/scgi;
      client_max_body_size 0;
      keepalive_requests 10000000;
      upstream service { server 127.0.0.1:${upstreamPort}; keepalive 64; keepalive_requests 10000000; }
      server {
        listen 127.0.0.1:${port};
        location / {
          proxy_pass http://service;
          proxy_http_version 1.1;
          proxy_set_header Connection "";
          proxy_request_buffering off;
          proxy_buffering on;
        }
      }
    }
  `;
}
