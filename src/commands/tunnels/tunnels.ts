import { readFileSync } from 'node:fs';
import type { CreatedTunnel, TunnelDetail } from '../../agent/api/present.ts';
import { callAgent, tunnelPath } from '../../agent/api-client.ts';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { agentSettings } from '../settings-place.ts';
import { printable } from '../terminal-text.ts';

interface JsonOption {
  json?: boolean;
}

/**
 * Starts a tunnel and prints its URL. Warns when nothing answers at the upstream.
 *
 * @throws {OperatorError} exit code 2 when the policy file is unusable, 1 when the agent refuses
 */
export async function startTunnel(
  forwardsTo: string,
  options: JsonOption & { domain?: string; protocol: string; policy?: string },
): Promise<void> {
  const settings = agentSettings('api');
  const tunnel = await callAgent<CreatedTunnel>(settings, 'POST', '/tunnels', {
    body: {
      protocol: options.protocol,
      forwards_to: forwardsTo,
      ...(options.domain !== undefined && { domain: options.domain }),
      ...(options.policy !== undefined && { policy: await readPolicy(options.policy) }),
    },
  });
  print(options.json ? JSON.stringify(tunnel, null, 2) : `${tunnel.url} -> ${tunnel.forwards_to}`);
  if (tunnel.notice !== undefined) process.stderr.write(`device-agent: note: ${printable(tunnel.notice)}\n`);
  await warnOfUpstream(tunnel.url, settings);
}

/** A tunnel is useful before its upstream starts, so this is no failure. */
async function warnOfUpstream(url: string, settings: Settings): Promise<void> {
  const tunnel = await callAgent<TunnelDetail>(settings, 'GET', tunnelPath(url)).catch(() => null);
  if (tunnel?.status !== 'degraded') return;
  const { forwards_to, upstream } = tunnel;
  process.stderr.write(
    `device-agent: warning: nothing answers at ${forwards_to} (${upstream.reason}); clients get errors until it does\n`,
  );
}

export async function showTunnel(name: string, options: JsonOption): Promise<void> {
  const tunnel = await callAgent<TunnelDetail>(agentSettings('api'), 'GET', tunnelPath(name));
  if (options.json) return print(JSON.stringify(tunnel, null, 2));
  const error = tunnel.last_error;
  const rows = [
    ['URL', tunnel.url],
    ['Status', `${tunnel.status} since ${tunnel.since}`],
    ['Forwards to', `${tunnel.forwards_to} (${tunnel.protocol})`],
    ['Upstream', upstreamText(tunnel)],
    ...(tunnel.traffic ? [['Traffic', trafficText(tunnel.traffic)]] : []),
    ['Created', tunnel.created_at],
    ...(error ? [['Last error', [error.code, error.message].filter(Boolean).join(' ')]] : []),
    ['Policy', tunnel.policy],
  ];
  print(rows.map(([label, value]) => `${`${label}:`.padEnd(13)}${value}`).join('\n'));
}

export async function deleteTunnel(name: string, options: JsonOption): Promise<void> {
  await callAgent(agentSettings('api'), 'DELETE', tunnelPath(name));
  if (options.json) print(JSON.stringify({ deleted: name }, null, 2));
}

function upstreamText({ upstream: { state, since, checked_at } }: TunnelDetail): string {
  return checked_at === null ? 'not checked yet' : `${state} since ${since}, checked at ${checked_at}`;
}

function trafficText({ requests, bytes_in, bytes_out, last_at }: NonNullable<TunnelDetail['traffic']>): string {
  return `${requests} requests, ${bytes_in} bytes in, ${bytes_out} bytes out${last_at ? `, last at ${last_at}` : ''}`;
}

async function readPolicy(file: string): Promise<unknown> {
  try {
    // JSON is YAML, but the parser of JSON names the place of an error better.
    const text = readFileSync(file, 'utf8');
    return file.endsWith('.json') ? JSON.parse(text) : (await import('yaml')).parse(text);
  } catch (error) {
    throw new OperatorError(`cannot use the policy file ${file}: ${messageOf(error)}`, 2);
  }
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
