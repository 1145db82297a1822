import { readFileSync } from 'node:fs';
import type { CreatedTunnel, ListedTunnel, TunnelDetail } from '../agent/api/present.ts';
import { callAgent, tunnelPath } from '../agent/api-client.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { agentSettings } from './settings-place.ts';

interface JsonOption {
  json?: boolean;
}

export async function listTunnels(options: JsonOption): Promise<void> {
  const tunnels = await callAgent<ListedTunnel[]>(agentSettings('api'), 'GET', '/tunnels');
  if (options.json) return print(JSON.stringify(tunnels, null, 2));
  if (tunnels.length === 0)
    return print('No tunnels. Start one with: device-agent tunnels start 8001 --domain HOSTNAME');
  print(
    table(
      ['NAME', 'URL', 'PROTOCOL', 'FORWARDS TO'],
      tunnels.map((t) => [t.url_part, t.url, t.protocol, t.forwards_to]),
    ),
  );
}

/**
 * Starts a tunnel and prints its URL.
 *
 * @throws {OperatorError} exit code 2 when the policy file is unusable, 1 when the agent refuses
 */
export async function startTunnel(
  forwardsTo: string,
  options: JsonOption & { domain?: string; protocol: string; policy?: string },
): Promise<void> {
  const tunnel = await callAgent<CreatedTunnel>(agentSettings('api'), 'POST', '/tunnels', {
    body: {
      protocol: options.protocol,
      forwards_to: forwardsTo,
      ...(options.domain !== undefined && { domain: options.domain }),
      ...(options.policy !== undefined && { policy: readPolicy(options.policy) }),
    },
  });
  print(options.json ? JSON.stringify(tunnel, null, 2) : `${tunnel.url} -> ${tunnel.forwards_to}`);
}

export async function showTunnel(name: string, options: JsonOption): Promise<void> {
  const tunnel = await callAgent<TunnelDetail>(agentSettings('api'), 'GET', tunnelPath(name));
  if (options.json) return print(JSON.stringify(tunnel, null, 2));
  const error = tunnel.last_error;
  const rows = [
    ['URL', tunnel.url],
    ['Status', `${tunnel.status} since ${tunnel.since}`],
    ['Forwards to', `${tunnel.forwards_to} (${tunnel.protocol})`],
    ['Created', tunnel.created_at],
    ...(error ? [['Last error', [error.code, error.message].filter(Boolean).join(' ')]] : []),
    ['Policy', tunnel.policy],
  ];
  print(rows.map(([label, value]) => `${`${label}:`.padEnd(13)}${value}`).join('\n'));
}

export async function deleteTunnel(name: string): Promise<void> {
  await callAgent(agentSettings('api'), 'DELETE', tunnelPath(name));
}

function readPolicy(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new OperatorError(`cannot use the policy file ${file}: ${messageOf(error)}`, 2);
  }
}

function table(head: string[], rows: string[][]): string {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)));
  const line = (cells: string[]) =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  return [head, ...rows].map(line).join('\n');
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
