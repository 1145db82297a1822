import { execFile } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { temporaryFolder } from './folders.ts';
import { HERE, type Place, startScript } from './process.ts';

/** The result of a load; latencies in milliseconds. */
export interface LoadResult {
  requests: number;
  bytes: number;
  seconds: number;
  p50: number;
  p99: number;
}

/** The target of a load. */
export interface Target {
  /** Default: loopback. */
  host?: string;
  port: number;
  /** Sent as Host and SNI. */
  name: string;
  tls: boolean;
}

const WRK = '/usr/bin/wrk';
/** wrk takes the Host header from the URL, and would resolve the name. */
const TO_LOOPBACK = `
  local resolve = wrk.resolve
  wrk.resolve = function(_, service) return resolve("127.0.0.1", service) end
`;
const UNITS: Record<string, number> = { us: 0.001, ms: 1, s: 1000 };

/** The load generator: wrk if installed, because it takes a fifth of the script's processor time. */
export const requestsBy = existsSync(WRK) ? 'wrk' : 'a script of Node';

/** Small GETs on keep-alive connections, one request at a time on each. */
export async function sendRequests(to: Target, connections: number, seconds: number): Promise<LoadResult> {
  if (requestsBy === 'wrk') return runWrk(to, connections, seconds);
  return runLoad(to, { path: '/', connections, seconds });
}

/** Runs the load script. */
export async function runLoad({ host, port, name, tls }: Target, load: object, at: Place = HERE): Promise<LoadResult> {
  return (await startScript<LoadResult>('load', [JSON.stringify({ host, port, name, tls, ...load })], at)).ready;
}

async function runWrk({ port, name, tls }: Target, connections: number, seconds: number): Promise<LoadResult> {
  const script = join(temporaryFolder(), 'to-loopback.lua');
  writeFileSync(script, TO_LOOPBACK);
  const options = ['-t1', `-c${connections}`, `-d${seconds}`, '--latency', '-s', script];
  const { stdout } = await promisify(execFile)(WRK, [...options, `${tls ? 'https' : 'http'}://${name}:${port}/`]);
  const [, requests, took] = /(\d+) requests in ([\d.]+)s/.exec(stdout) ?? [];
  if (requests === undefined || /Non-2xx|Socket errors/.test(stdout)) throw new Error(`wrk failed:\n${stdout}`);
  const percentile = (rank: number) => {
    const [, value, unit] = new RegExp(`^ +${rank}% +([\\d.]+)(us|ms|s)$`, 'm').exec(stdout) ?? [];
    return Number(value) * (UNITS[unit ?? ''] ?? Number.NaN);
  };
  return { requests: Number(requests), bytes: 0, seconds: Number(took), p50: percentile(50), p99: percentile(99) };
}
