import { once } from 'node:events';
import { createServer } from 'node:net';
import { hasErrno, messageOf } from '../lib/errors.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { type Check, check, failed, ok, type Result, skipped } from './finding.ts';
import type { RunningAgent } from './running-agent.ts';

/** A port that a program listens on, and the settings that change it. */
export interface Port {
  what: string;
  setting: string;
  /** Null: it listens at 127.0.0.1 alone. */
  hostSetting: string | null;
  host: string;
  port: number;
}

/** Checks that the agent's ports are free, unless a running agent uses them. */
export function portsCheck(settings: Settings, agent: Promise<RunningAgent>): Check {
  return check('ports', 'Ports', async () => {
    const { status, holdsFolder } = await agent;
    if (status) return ok('used by the running agent');
    if (holdsFolder) return skipped('a running agent uses them, if these are its settings');
    return freePorts(portsOf(settings));
  });
}

/** Checks that a program that does not run yet could listen on its ports. */
export async function freePorts(wanted: readonly Port[]): Promise<Result[]> {
  const ports = wanted.filter(({ port }) => port !== 0);
  const results = await Promise.all(ports.map(tryPort));
  const taken = results.filter((result) => result !== null);
  if (taken.length > 0) return taken;
  return [ok(ports.length === 0 ? 'any free port' : `free: ${ports.map(({ port }) => port).join(', ')}`)];
}

/** The port of the agent's API. */
export function apiPort({ host, port }: Pick<Settings['api'], 'host' | 'port'>): Port {
  return { what: 'the local API', setting: 'AGENT_PORT', hostSetting: 'AGENT_HOST', host, port };
}

function portsOf({ api, gateway }: Settings): Port[] {
  const own = apiPort(api);
  if (gateway.kind !== 'embedded') return [own];
  const { httpsPort, httpPort } = gateway;
  const at = { host: '127.0.0.1', hostSetting: null };
  return [
    own,
    { what: "the embedded gateway's https", setting: 'GATEWAY_HTTPS_PORT', ...at, port: httpsPort },
    { what: "the embedded gateway's http", setting: 'GATEWAY_HTTP_PORT', ...at, port: httpPort },
  ];
}

/** @returns why the port is unavailable; null when it is free */
async function tryPort({ what, setting, hostSetting, host, port }: Port): Promise<Result | null> {
  const server = createServer();
  try {
    server.listen({ host, port });
    await once(server, 'listening');
    return null;
  } catch (error) {
    const where = `${what} cannot listen on ${host}:${port}`;
    if (hasErrno(error, 'EADDRINUSE')) {
      return failed(
        `${where}: the port is in use`,
        `stop the other program (sudo ss -ltnp 'sport = :${port}' shows it), or set ${setting}`,
      );
    }
    const otherAddress =
      hostSetting === null
        ? 'give this machine the address 127.0.0.1 (ip addr add 127.0.0.1/8 dev lo)'
        : `set ${hostSetting} to an address of this machine`;
    const advice = hasErrno(error, 'EADDRNOTAVAIL') ? otherAddress : null;
    return failed(`${where} (${messageOf(error)})`, advice ?? `set ${setting} to a port that this user can listen on`);
  } finally {
    server.close();
  }
}
