import type { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { type Agent, request } from 'node:https';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import type { Gateway } from '../../src/gateway/gateway.ts';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';

export interface ApiAnswer {
  status: number;
  /** Empty without a body. */
  body: Record<string, unknown>;
}

/** A client of a gateway's management API and public TLS port. */
export class GatewayClient {
  constructor(
    private readonly gateway: Pick<Gateway, 'apiUrl' | 'httpsPort' | 'sessionCa'>,
    private readonly address: string,
    private readonly apiKey: string,
    /** Left out: a connection for each request. */
    private readonly agent: Agent | false = false,
  ) {}

  /** @param address the gateway's listening address */
  static async of(gateway: Gateway, address = '127.0.0.1'): Promise<GatewayClient> {
    const { token } = await gateway.store.database.write(() => issueApiKey(gateway.store, {}));
    return new GatewayClient(gateway, address, token);
  }

  /** Sends a request to the management API. */
  async call(method: string, path: string, body?: object): Promise<ApiAnswer> {
    const { host, hostname } = new URL(this.gateway.apiUrl);
    const req = request({
      host: this.address,
      port: this.gateway.httpsPort,
      servername: hostname,
      ca: this.gateway.sessionCa,
      method,
      path,
      agent: this.agent,
      headers: {
        host,
        authorization: `Bearer ${this.apiKey}`,
        'service-version': '2',
        ...(body && { 'content-type': 'application/json' }),
      },
    });
    req.end(body && JSON.stringify(body));
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    const answer = await text(res);
    return { status: Number(res.statusCode), body: answer === '' ? {} : JSON.parse(answer) };
  }

  /** The certificate that the public TLS port presents for a name. */
  async presented(servername: string): Promise<X509Certificate> {
    const { httpsPort: port } = this.gateway;
    const socket = connect({ host: this.address, port, servername, rejectUnauthorized: false });
    try {
      await once(socket, 'secureConnect');
      const certificate = socket.getPeerX509Certificate();
      if (!certificate) throw new Error('no certificate was presented');
      return certificate;
    } finally {
      socket.destroy();
    }
  }
}
