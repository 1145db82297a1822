import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { type ConnectionOptions, connect, createServer as createTlsServer, type TLSSocket } from 'node:tls';
import type { Session } from '@ngrok/ngrok';
import { onTestFinished } from 'vitest';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { agentSession, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { listening } from '../../support/loopback.ts';

/** TLS edges of a gateway, created through its management API, with labelled tunnels of the real SDK. */
export class EdgeScene {
  #names = 0;
  readonly #servers: Server[] = [];

  private constructor(
    readonly gateway: TestGateway,
    readonly client: GatewayClient,
    readonly session: Session,
    /** The certificate of TLS upstreams. */
    readonly device: Issued,
  ) {}

  static async start(): Promise<EdgeScene> {
    const gateway = await startTestGateway();
    const device = await issueCertificate({ subject: 'CN=device', names: ['device.example'] });
    const session = await agentSession(gateway).connect();
    return new EdgeScene(gateway, await GatewayClient.of(gateway), session, device);
  }

  async close(): Promise<void> {
    await this.session.close();
    await this.gateway.close();
    for (const server of this.#servers) server.close();
  }

  /** A unique name. */
  name(): string {
    this.#names += 1;
    return `e${this.#names}.localhost`;
  }

  /** Creates a resource; resolves with its id. */
  async create(path: string, body: object): Promise<string> {
    const { status, body: answer } = await this.client.call('POST', path, body);
    if (status !== 201) throw new Error(JSON.stringify(answer));
    return String(answer.id);
  }

  /** Changes a resource; resolves with the answer. */
  async change(method: string, path: string, body?: object): Promise<Record<string, unknown>> {
    const { status, body: answer } = await this.client.call(method, path, body);
    if (status !== 200 && status !== 204) throw new Error(JSON.stringify(answer));
    return answer;
  }

  /** Creates an edge for a host, with its own tunnel group as backend. */
  async edge(host: string, modules: object = {}): Promise<string> {
    const backend_id = await this.create('/backends/tunnel_group', { labels: { host } });
    return this.create('/edges/tls', { hostports: [`${host}:443`], backend: { backend_id }, ...modules });
  }

  /** Starts an upstream that greets and echoes, perhaps over TLS; resolves with its address. */
  async service({ says = 'hello', tls = false } = {}): Promise<string> {
    const greet = (socket: Socket) => {
      socket.on('error', () => {}).write(`${says} `);
      socket.pipe(socket);
    };
    const { certificatePem: cert, privateKeyPem: key } = this.device;
    const server = tls ? createTlsServer({ cert, key }, greet) : createServer({ allowHalfOpen: true }, greet);
    this.#servers.push(server);
    const port = await listening(server);
    return `127.0.0.1:${port}`;
  }

  /** Opens a tunnel from such an edge to an upstream. */
  async tunnel(host: string, service: { says?: string; tls?: boolean } = {}): Promise<{ close(): Promise<void> }> {
    const listener = await this.session.labeledListener().label('host', host).listen(false);
    listener.forward(`tcp://${await this.service(service)}`).catch(() => {});
    return listener;
  }

  /** Opens a TLS connection to the gateway. */
  async connect(servername: string, options: ConnectionOptions = {}): Promise<TLSSocket> {
    const target = { host: '127.0.0.1', port: this.gateway.httpsPort, servername, rejectUnauthorized: false };
    const socket = connect({ ...target, ...options });
    onTestFinished(() => void socket.destroy());
    await once(socket, 'secureConnect');
    return socket;
  }

  /** What a client receives that sends `me`; empty when it is rejected. */
  async answer(servername: string, options: ConnectionOptions = {}): Promise<string> {
    try {
      const socket = await this.connect(servername, options);
      socket.end('me');
      return await text(socket);
    } catch {
      return '';
    }
  }
}
