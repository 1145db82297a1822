import { once } from 'node:events';
import { createServer } from 'node:net';
import { hasErrno, messageOf } from '../lib/errors.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { type Check, check, failed, ok, type Result, skipped } from './finding.ts';
import type { RunningAgent } from './running-agent.ts';

/** A port that the agent listens on, and the setting that changes it. */
interface Port {
  what: string;
  setting: string;
  host: string;
  port: number;
}

/** Checks that the agent's ports are free, unless a running agent uses them. */
export function portsCheck(settings: Settings, agent: Promise<RunningAgent>): Check {
  return check('ports', 'Ports', async () => {
    const { status, holdsFolder } = await agent;
    if (status) return ok('used by the running agent');
    if (holdsFolder) return skipped('a running agent uses them, if these are its settings');
    const ports = portsOf(settings).filter(({ port }) => port !== 0);
    const results = await Promise.all(ports.map(tryPort));
    const taken = results.filter((result) => result !== null);
    if (taken.length > 0) return taken;
    return ok(ports.length === 0 ? 'any free port' : `free: ${ports.map(({ port }) => port).join(', ')}`);
  });
}

function portsOf({ api, gateway }: Settings): Port[] {
  const own = { what: 'the local API', setting: 'AGENT_PORT', host: api.host, port: api.port };
  if (gateway.kind !== 'embedded') return [own];
  const { httpsPort, httpPort } = gateway;
  const host = '127.0.0.1';
  return [
    own,
    { what: "the embedded gateway's https", setting: 'GATEWAY_HTTPS_PORT', host, port: httpsPort },
    { what: "the embedded gateway's http", setting: 'GATEWAY_HTTP_PORT', host, port: httpPort },
  ];
}

/** @returns why the port is unavailable; null when it is free */
async function tryPort({ what, setting, host, port }: Port): Promise<Result | null> {
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
    const advice = hasErrno(error, 'EADDRNOTAVAIL') ? 'set AGENT_HOST to an address of this machine' : null;
    return failed(`${where} (${messageOf(error)})`, advice ?? `set ${setting} to a port that this user can listen on`);
  } finally {
    server.close();
  }
}
