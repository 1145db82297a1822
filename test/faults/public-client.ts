import { Agent, request } from 'node:https';
import { text } from 'node:stream/consumers';
import { createSecureContext, type SecureContext } from 'node:tls';
import type { Gateway } from '../../src/gateway/gateway.ts';
import { Limiter } from '../../src/lib/limiter.ts';
import { FULL } from './rounds.ts';

/** Milliseconds after which a request counts as not answered: well above what a busy machine needs. */
const PATIENCE_MS = FULL ? 1_500 : 5_000;
/** Requests under way at a time. More would measure how busy the test itself is, and never end on a slow machine. */
const MAX_ASKING = 16;

/** Sends requests to tunnels over HTTPS as clients do, on persistent connections. */
export class PublicClient {
  readonly #agent = new Agent({ keepAlive: true });
  readonly #limiter = new Limiter(MAX_ASKING);
  /** Of the gateway's CA: to read that for each connection takes a fifth of its time. */
  #secureContext: { ca: string; value: SecureContext } | null = null;

  constructor(
    private readonly gateway: () => Pick<Gateway, 'httpsPort' | 'sessionCa'>,
    private readonly patienceMs = PATIENCE_MS,
  ) {}

  /** The answer of the tunnel's upstream; null when something else or nothing answered. */
  get(host: string, path = '/'): Promise<string | null> {
    return this.#limiter.run(() => this.#get(host, path));
  }

  #get(host: string, path: string): Promise<string | null> {
    const { httpsPort, sessionCa } = this.gateway();
    return new Promise((resolve) => {
      const secureContext = this.#contextOf(sessionCa);
      const address = { host: '127.0.0.1', port: httpsPort, servername: host, ca: sessionCa, secureContext, path };
      const req = request({ ...address, agent: this.#agent, headers: { host: `${host}:${httpsPort}` } }, (res) => {
        text(res).then(
          (body) => resolve(res.statusCode === 200 ? body : null),
          () => resolve(null),
        );
      });
      req.on('error', () => resolve(null));
      const late = setTimeout(() => req.destroy(new Error('too late')), this.patienceMs);
      req.on('close', () => clearTimeout(late));
      req.end();
    });
  }

  #contextOf(ca: string): SecureContext {
    if (this.#secureContext?.ca !== ca) this.#secureContext = { ca, value: createSecureContext({ ca }) };
    return this.#secureContext.value;
  }

  close(): void {
    this.#agent.destroy();
  }
}
