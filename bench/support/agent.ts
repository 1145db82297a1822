import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Child, startChild } from './process.ts';

/** A running agent, as started by `npm start`. */
export interface BenchAgent {
  child: Child<string>;
  /** `http://127.0.0.1:port` of its local API. */
  api: string;
  folder: string;
  /** Milliseconds from the start of the process until its API responds. */
  readyMs: number;
  stop(): Promise<void>;
}

/** Starts the agent on free ports and waits until its API responds. */
export async function startAgentProcess(folder: string, env: Record<string, string> = {}): Promise<BenchAgent> {
  const started = performance.now();
  const cli = new URL('../../dist/cli.js', import.meta.url).pathname;
  const settings = {
    DATA_DIR: folder,
    AGENT_PORT: '0',
    GATEWAY_HTTP_PORT: '0',
    GATEWAY_HTTPS_PORT: '0',
    LOG_FORMAT: 'json',
    ...env,
  };
  const child = await startChild(
    process.execPath,
    ['--max-semi-space-size=1', '--v8-pool-size=1', '--expose-gc', cli],
    settings,
    (line) => {
      if (!line.startsWith('{')) return undefined;
      const entry = JSON.parse(line) as { msg: string; url?: string };
      return entry.msg === 'local API listening' ? entry.url : undefined;
    },
  );
  const response = await fetch(`${child.ready}/healthz`);
  await response.arrayBuffer();
  return { child, api: child.ready, folder, readyMs: performance.now() - started, stop: () => child.stop() };
}

/** Creates one tunnel over the API and returns its URL. */
export async function createTunnel(agent: BenchAgent, domain: string, upstreamPort: number): Promise<string> {
  const response = await fetch(`${agent.api}/tunnels`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ protocol: 'http', forwards_to: upstreamPort, domain }),
  });
  const body = (await response.json()) as { url?: string; msg?: string };
  if (!response.ok) throw new Error(`POST /tunnels: ${response.status} ${body.msg}`);
  return body.url ?? '';
}

/** Resolves when the session and every tunnel are online. */
export async function untilReady(agent: BenchAgent): Promise<void> {
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    const response = await fetch(`${agent.api}/readyz`);
    await response.arrayBuffer();
    if (response.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error('the agent did not become ready within 60 s');
}

/** The start of the agent's session with the gateway. */
export async function sessionSince(agent: BenchAgent): Promise<Date> {
  const response = await fetch(`${agent.api}/status`);
  const { session } = (await response.json()) as { session: { since: string } };
  return new Date(session.since);
}

/** The content of an agent's store. */
interface StoredTunnels {
  tunnels: [StoredTunnel, ...StoredTunnel[]];
}

interface StoredTunnel {
  url: string;
  [member: string]: unknown;
}

/** The stored tunnels of a data folder; at least one. */
export function storedTunnels(folder: string): StoredTunnels {
  return JSON.parse(readFileSync(join(folder, 'tunnels.json'), 'utf8')) as StoredTunnels;
}

/** Fills a data folder with copies of a tunnel that an agent stored. */
export function multiplyTunnels(folder: string, count: number): void {
  const stored = storedTunnels(folder);
  const [sample] = stored.tunnels;
  const tunnels = Array.from({ length: count }, (_, i) => {
    const url = new URL(sample.url);
    url.hostname = `bench-${i}.localhost`;
    return { ...sample, id: `bench-${i}`, domain: url.hostname, url: url.origin };
  });
  writeFileSync(join(folder, 'tunnels.json'), JSON.stringify({ ...stored, tunnels }), { mode: 0o600 });
}
