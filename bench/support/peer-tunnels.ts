import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './folders.ts';
import { freePort, type Place, startChild } from './process.ts';

/** Where a tunnel of another program starts and ends. */
export interface Ends {
  gateway: Place;
  device: Place;
  upstreamPort: number;
}

/** A tunnel of another program. */
export interface PeerTunnel {
  /** On the gateway's loopback. */
  port: number;
  stop(): Promise<void>;
}

/** The tcp proxy of frp, with TLS; null when `frps` and `frpc` are not on the PATH. */
export async function startFrp({ gateway, device, upstreamPort }: Ends): Promise<PeerTunnel | null> {
  if (!isInstalled('frps') || !isInstalled('frpc')) return null;
  const [serverPort, port] = [await freePort(), await freePort()];
  const server = configuration(`bindAddr = "${gateway.address}"
bindPort = ${serverPort}
proxyBindAddr = "127.0.0.1"
`);
  const client = configuration(`serverAddr = "${gateway.address}"
serverPort = ${serverPort}
[[proxies]]
name = "bench"
type = "tcp"
localIP = "127.0.0.1"
localPort = ${upstreamPort}
remotePort = ${port}
`);
  return startPair(
    { command: `frps -c ${server}`, says: 'started successfully', at: gateway },
    { command: `frpc -c ${client}`, says: 'start proxy success', at: device },
    port,
  );
}

/** rathole with its noise transport; null when it is not on the PATH. */
export async function startRathole({ gateway, device, upstreamPort }: Ends): Promise<PeerTunnel | null> {
  if (!isInstalled('rathole')) return null;
  const [serverPort, port] = [await freePort(), await freePort()];
  const [privateKey, publicKey] = execFileSync('rathole', ['--genkey'], { encoding: 'utf8' }).match(/^\S+=$/gm) ?? [];
  const server = configuration(`[server]
bind_addr = "${gateway.address}:${serverPort}"
default_token = "bench"
[server.transport]
type = "noise"
[server.transport.noise]
local_private_key = "${privateKey}"
[server.services.bench]
bind_addr = "127.0.0.1:${port}"
`);
  const client = configuration(`[client]
remote_addr = "${gateway.address}:${serverPort}"
default_token = "bench"
[client.transport]
type = "noise"
[client.transport.noise]
remote_public_key = "${publicKey}"
[client.services.bench]
local_addr = "127.0.0.1:${upstreamPort}"
`);
  return startPair(
    { command: `rathole --server ${server}`, says: 'Listening at', at: gateway },
    { command: `rathole --client ${client}`, says: 'Control channel established', at: device },
    port,
  );
}

/** @property says what it prints when it is ready */
interface Program {
  command: string;
  says: string;
  at: Place;
}

async function startPair(server: Program, client: Program, port: number): Promise<PeerTunnel> {
  const children = [await start(server), await start(client)];
  return {
    port,
    stop: async () => {
      for (const child of children) await child.stop();
    },
  };
}

function start({ command, says, at }: Program) {
  const ready = (line: string) => (line.includes(says) ? true : undefined);
  return startChild('sh', ['-c', `exec ${command} 2>&1`], {}, ready, at);
}

function isInstalled(program: string): boolean {
  try {
    execFileSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

function configuration(text: string): string {
  const path = join(temporaryFolder(), 'config.toml');
  writeFileSync(path, text);
  return path;
}
