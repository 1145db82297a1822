import { rm } from 'node:fs/promises';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect as connectTcp, createServer as createTcpServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import ngrok from '@ngrok/ngrok';
import { onTestFinished } from 'vitest';
import { AuthtokenAcl } from '../../../src/gateway/access/authtoken-acl.ts';
import { AuthtokenAuthentication } from '../../../src/gateway/access/authtoken-authentication.ts';
import { type LocalCa, openLocalCa } from '../../../src/gateway/certificates/local-ca/local-ca.ts';
import { gatewayDomains } from '../../../src/gateway/endpoints/domain-names.ts';
import { EndpointPolicies } from '../../../src/gateway/endpoints/endpoint-policies.ts';
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import { EdgeCounters } from '../../../src/gateway/metrics/edge-counters.ts';
import type { AgentMemory } from '../../../src/gateway/sessions/agent-limits.ts';
import { EndpointBinder } from '../../../src/gateway/sessions/endpoint-binder.ts';
import { SessionServer } from '../../../src/gateway/sessions/session-server.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../../../src/gateway/store/store.ts';
import { issueEmbeddedAuthtoken } from '../../../src/gateway/store/tokens.ts';
import type { AgentLimits } from '../../../src/settings/gateway-settings.ts';
import { NO_ACTIVITY } from '../../support/edge-context.ts';
import { makeDataDir, SESSION_NAMES } from '../../support/gateway.ts';
import { listening, serving } from '../../support/loopback.ts';
import { silentLog } from '../../support/silent-log.ts';

/** The session side of a gateway, without an edge; it stops with the test. */
export class SessionGateway {
  readonly endpoints = new EndpointRegistry();
  authtoken = '';
  port = 0;
  caPem = '';
  #server: SessionServer | null = null;
  #store: Store | null = null;

  static async start(
    port = 0,
    dataDir?: string,
    options: {
      limits?: Partial<AgentLimits>;
      unauthenticated?: number;
      memory?: AgentMemory;
      issueCertificate?: () => ReturnType<LocalCa['issue']>;
    } = {},
  ): Promise<SessionGateway> {
    const gateway = new SessionGateway();
    const dir = dataDir ?? (await makeDataDir());
    const ca = await openLocalCa(join(dir, 'gateway'), silentLog);
    gateway.caPem = ca.caPem;
    const store = openGatewayStore({ dataDir: dir, encryptionKey: null });
    gateway.authtoken = await issueEmbeddedAuthtoken(store);
    gateway.#store = store;
    const { limits = {}, unauthenticated = 256, issueCertificate = () => ca.issue(SESSION_NAMES), ...own } = options;
    const { endpoints } = gateway;
    const context = {
      store,
      options: { host: '127.0.0.1', sessionPort: port, agentLimits: limits },
      shares: { sessions: 10_000, unauthenticated },
      balancers: null,
      counters: new EdgeCounters(),
      activity: NO_ACTIVITY,
      log: silentLog,
    };
    const addresses = { baseDomain: 'localhost', ports: { http: 8080, https: 8443 }, tcpHost: 'localhost' };
    const policies = new EndpointPolicies({ ipPolicies: () => null, log: silentLog });
    const server = new SessionServer(context, {
      access: new AuthtokenAuthentication(
        { store, catchUp: async () => {} },
        new AuthtokenAcl(store, gatewayDomains('localhost')),
        { judge: () => null, keep: async () => null },
        () => false,
      ),
      binder: new EndpointBinder(
        { store, endpoints, addresses, domains: gatewayDomains('localhost') },
        { policies, tcpPorts: null, leases: null, watch: null },
      ),
      issueCertificates: async () => [{ id: ca.id, ...(await issueCertificate()) }],
      leases: null,
      node: null,
      relays: null,
      ...own,
    });
    gateway.#server = server;
    gateway.port = Number(await server.start());
    onTestFinished(async () => {
      await server.stop();
      store.database.close();
      if (dataDir === undefined) await rm(dir, { recursive: true, force: true });
    });
    return gateway;
  }

  get store(): Store {
    if (!this.#store) throw new Error('not started');
    return this.#store;
  }

  get server(): SessionServer {
    if (!this.#server) throw new Error('not started');
    return this.#server;
  }

  /** A session builder of the SDK for this gateway; it does not reconnect by default. */
  agent(options: { port?: number; metadata?: string; reconnects?: boolean } = {}): ngrok.SessionBuilder {
    const builder = new ngrok.SessionBuilder()
      .authtoken(this.authtoken)
      .serverAddr(`127.0.0.1:${options.port ?? this.port}`)
      .caCert(Buffer.from(this.caPem))
      .handleDisconnection(() => options.reconnects ?? false);
    return options.metadata === undefined ? builder : builder.metadata(options.metadata);
  }

  /** A raw TLS connection, for a hostile or broken agent. */
  async rawClient(): Promise<TLSSocket> {
    const socket = connectTls({ host: '127.0.0.1', port: this.port, ca: this.caPem });
    onTestFinished(() => void socket.destroy());
    await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject));
    return socket.on('error', () => {});
  }

  /** Sends a GET through an endpoint without an edge, and returns the whole response. */
  async get(host: string, path = '/'): Promise<string> {
    const endpoint = this.endpoints.lookup('https', host);
    if (!endpoint) throw new Error(`${host} is offline`);
    const stream = endpoint.openStream({ address: '203.0.113.7:4567', protocol: 'https' });
    stream.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    stream.end();
    return Buffer.concat(chunks).toString();
  }
}

/** Starts an HTTP server on loopback that stops with the test; returns its port. */
export async function upstream(listener: RequestListener): Promise<number> {
  return serving(createHttpServer(listener));
}

/** A TCP proxy that can go silent: its connections stay open but carry no bytes. */
export class SilentLink {
  port = 0;
  readonly #sockets = new Set<Socket>();

  static async to(target: number): Promise<SilentLink> {
    const link = new SilentLink();
    const server = createTcpServer((near) => {
      const far = connectTcp(target, '127.0.0.1');
      for (const socket of [near, far]) {
        link.#sockets.add(socket);
        socket.on('error', () => {});
      }
      near.pipe(far).pipe(near);
    });
    await listening(server);
    onTestFinished(() => {
      for (const socket of link.#sockets) socket.destroy();
      server.close();
    });
    link.port = (server.address() as AddressInfo).port;
    return link;
  }

  /** Stops forwarding on all open connections. */
  goSilent(): void {
    for (const socket of this.#sockets) socket.unpipe().pause();
  }

  /** Closes all connections; new ones are forwarded. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
  }
}
