import { AccountAccess } from './access/account-access.ts';
import { SessionAccess } from './access/session-access.ts';
import type { LocalCa } from './certificates/local-ca.ts';
import type { DomainSettings } from './domain-names.ts';
import { TcpListeners } from './edge/tcp-listeners.ts';
import type { EndpointPolicies } from './endpoint-policies.ts';
import type { EndpointRegistry } from './endpoints.ts';
import type { GatewayOptions } from './gateway.ts';
import { connectHost, tcpHost } from './own-addresses.ts';
import { EndpointBinder } from './sessions/endpoint-binder.ts';
import { SessionServer } from './sessions/session-server.ts';
import { TcpPorts } from './sessions/tcp-ports.ts';
import type { Store } from './store/store.ts';
import type { Tally } from './tally.ts';

type SessionOptions = Pick<GatewayOptions, 'host' | 'sessionPort' | 'tcpPorts' | 'edgeLimits' | 'agentLimits' | 'log'>;

interface SessionParts {
  ca: LocalCa;
  store: Store;
  domains: DomainSettings;
  endpoints: EndpointRegistry;
  policies: EndpointPolicies;
  /** Of the edge, which is up. */
  ports: { httpPort: number; httpsPort: number };
  tally: Tally;
}

/**
 * Starts what agents come to, with the ports for their tcp endpoints.
 *
 * @throws the system's error when the port for agents cannot be had
 */
export async function startSessions(
  options: SessionOptions,
  { ca, store, domains, endpoints, policies, ports, tally }: SessionParts,
  onStop: (stop: () => Promise<void>) => void,
) {
  const { host, log } = options;
  const { baseDomain } = domains;
  const { ids } = store;
  const sessions = new SessionServer({
    access: new SessionAccess(new AccountAccess(store, domains, ports.httpsPort)),
    binder: new EndpointBinder({
      endpoints,
      ids,
      policies,
      addresses: { baseDomain, ports: { http: ports.httpPort, https: ports.httpsPort }, tcpHost: tcpHost(baseDomain) },
      tcpPorts: openTcpPorts(options, { endpoints, store, tally }, onStop),
    }),
    ids,
    issueCertificate: () => ca.issue([...new Set([connectHost(baseDomain), host, 'localhost', '127.0.0.1', '::1'])]),
    host,
    port: options.sessionPort,
    limits: options.agentLimits,
    tally,
    log,
  });
  const sessionPort = await sessions.start();
  onStop(() => sessions.stop());
  return { sessions, sessionPort };
}

/** @returns null when there are to be none */
function openTcpPorts(
  { tcpPorts: range = null, edgeLimits: limits, host, log }: SessionOptions,
  { endpoints, store, tally }: { endpoints: EndpointRegistry; store: Store; tally: Tally },
  onStop: (stop: () => Promise<void>) => void,
): TcpPorts | null {
  if (range === null) return null;
  const opener = new TcpListeners({ host, endpoints, limits, tally, log });
  onStop(async () => opener.stop());
  return new TcpPorts({ range, opener, memory: store.tcpPorts, log });
}
