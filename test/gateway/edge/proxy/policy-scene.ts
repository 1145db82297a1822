import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { HttpListenerBuilder, Listener, Session } from '@ngrok/ngrok';
import pino from 'pino';
import { WebSocketServer } from 'ws';
import type { GatewayOptions } from '../../../../src/gateway/context/gateway-options.ts';
import { collect } from '../../../support/edge.ts';
import { agentSession, startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { type Answer, type Ask, ask } from '../../../support/http-request.ts';

/** What the upstream saw of a request. */
export interface Seen {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

interface BindOptions {
  scheme?: 'HTTP' | 'HTTPS';
  domain?: string;
  /** Another session than the scene's own. */
  session?: Session;
}

/** A gateway, the real SDK and an upstream that reports the requests it receives. */
export class PolicyScene {
  readonly gateway: TestGateway;
  /** Lines of the gateway's log. */
  readonly lines: Record<string, unknown>[];
  /** How many requests have started to reach the upstream. */
  arrived = 0;
  /** How many of them have ended before their response was complete. */
  left = 0;
  #session: Session | null = null;
  readonly #upstream: Server;
  #names = 0;

  private constructor(gateway: TestGateway, lines: Record<string, unknown>[]) {
    this.gateway = gateway;
    this.lines = lines;
    this.#upstream = createServer(async (req, res) => {
      this.arrived++;
      res.once('close', () => {
        if (!res.writableFinished) this.left++;
      });
      const { method = '', url = '' } = req;
      const headers = Object.fromEntries(Object.entries(req.headers).map(([name, value]) => [name, String(value)]));
      const seen = { method, url, headers, body: (await collect(req)).toString() };
      res.setHeader('x-upstream', 'yes');
      const status = /^\/status\/(\d+)$/.exec(url);
      if (status) res.writeHead(Number(status[1])).end();
      else if (url === '/redirect') res.writeHead(302, { location: `http://${headers.host}/there?x` }).end();
      else if (url === '/again') res.writeHead(302, { location: url }).end();
      else if (url === '/long') res.end('x'.repeat(300_000));
      else if (url === '/events') res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: 1\n\n');
      else res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(seen));
    });
    new WebSocketServer({ server: this.#upstream }).on('connection', (socket, { headers }) => {
      socket.send(String(headers['x-by']));
    });
  }

  static async start(options: Partial<GatewayOptions> = {}): Promise<PolicyScene> {
    const lines: Record<string, unknown>[] = [];
    const log = pino({ level: 'info' }, { write: (line: string) => lines.push(JSON.parse(line)) });
    const scene = new PolicyScene(await startTestGateway({ log, ...options }), lines);
    scene.#session = await agentSession(scene.gateway).connect();
    scene.#upstream.listen(0, '127.0.0.1');
    await once(scene.#upstream, 'listening');
    return scene;
  }

  /** Puts an endpoint online with a policy: an object, or literal text. */
  async bind(policy: object | string, options: BindOptions = {}): Promise<Endpoint> {
    const text = typeof policy === 'string' ? policy : JSON.stringify(policy);
    return this.open((builder) => builder.trafficPolicy(text), options);
  }

  /** Puts an endpoint online that is set up with the SDK's builder. */
  async open(
    setUp: (builder: HttpListenerBuilder) => unknown,
    { scheme = 'HTTP', domain = `p${++this.#names}.localhost`, session: other }: BindOptions = {},
  ): Promise<Endpoint> {
    const session = other ?? this.#session;
    if (!session) throw new Error('the scene has not started');
    const builder = session.httpEndpoint().domain(domain).scheme(scheme);
    setUp(builder);
    const listener = await builder.listen(false);
    listener.forward(this.upstreamUrl).catch(() => {});
    return new Endpoint(domain, listener, this.gateway.httpPort);
  }

  get upstreamUrl(): string {
    return `http://127.0.0.1:${(this.#upstream.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    await this.#session?.close();
    await this.gateway.close();
    this.#upstream.closeAllConnections();
    this.#upstream.close();
  }
}

/** A public endpoint of a scene. */
export class Endpoint {
  constructor(
    readonly host: string,
    readonly listener: Listener,
    readonly port: number,
  ) {}

  ask(options: Ask = {}): Promise<Answer> {
    return ask(this.port, this.host, options);
  }

  /** The status of the answer to a request. */
  async status(options: Ask = {}): Promise<number> {
    return (await this.ask(options)).status;
  }

  /** What the upstream saw of a request. */
  async reached(options: Ask = {}): Promise<Seen> {
    const { status, body } = await this.ask(options);
    if (status !== 200) throw new Error(`answered ${status} ${body}`);
    return JSON.parse(body) as Seen;
  }
}

/** A rule with one action. */
export function rule(type: string, config?: object, ...expressions: string[]): object {
  return { expressions, actions: [{ type, config }] };
}
