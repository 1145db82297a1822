import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { type Agent, type RequestOptions, request } from 'node:https';
import { text } from 'node:stream/consumers';
import { WebSocket } from 'ws';
import { AgentProcess } from '../support/agent-process.ts';

export interface Reply {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
}

export interface Ask {
  method?: string;
  path?: string;
  headers?: Record<string, string>;
  body?: string | Buffer;
  agent?: Agent;
}

interface TunnelItem {
  url: string;
  url_part: string;
  domain: string;
  policy: string;
}

/** A device with an agent and its embedded gateway: its local API, and requests of clients. */
export class Device {
  private constructor(
    readonly agent: AgentProcess,
    readonly api: string,
    readonly httpsPort: number,
    readonly ca: string,
  ) {}

  static async start(folder: string, env: Record<string, string> = {}): Promise<Device> {
    const agent = AgentProcess.start(folder, env);
    const api = await agent.ready();
    const { addresses } = (await (await fetch(`${api}/status`)).json()) as { addresses: Record<string, string> };
    const port = Number(addresses.gateway_https?.split(':').at(-1));
    return new Device(agent, api, port, readFileSync(String(addresses.gateway_ca), 'utf8'));
  }

  /** `POST /tunnels`, as a tunnel for http. */
  post(body: object): Promise<Response> {
    return fetch(`${this.api}/tunnels`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ protocol: 'http', ...body }),
    });
  }

  async delete(tunnel: string): Promise<number> {
    return (await fetch(`${this.api}/tunnels/${tunnel}`, { method: 'DELETE' })).status;
  }

  async tunnels(): Promise<TunnelItem[]> {
    return (await (await fetch(`${this.api}/tunnels`)).json()) as TunnelItem[];
  }

  /** A client's WebSocket, once it is open. */
  async webSocket(host: string): Promise<WebSocket> {
    const { servername, ca, headers } = this.address(host);
    const options: RequestOptions = { servername, ca, headers };
    const socket = new WebSocket(`wss://127.0.0.1:${this.httpsPort}/`, options);
    await once(socket, 'open');
    return socket;
  }

  /** Whether nothing is online at a hostname. */
  async knowsNothingOf(host: string): Promise<boolean> {
    const { status, headers } = await this.get(host);
    return status === 404 && headers['ngrok-error-code'] === 'ERR_NGROK_3200';
  }

  /** Where clients connect for a hostname; names below `localhost` need not resolve. */
  address(host: string) {
    const headers = { host: `${host}:${this.httpsPort}` };
    return { host: '127.0.0.1', port: this.httpsPort, servername: host, ca: this.ca, headers };
  }

  /** A client's request, up to the head of the response. */
  async open(host: string, { body, agent, headers, ...rest }: Ask = {}): Promise<IncomingMessage> {
    const address = this.address(host);
    const req = request({ ...address, ...rest, agent: agent ?? false, headers: { ...address.headers, ...headers } });
    req.end(body);
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    return res;
  }

  /** The same with the whole response. */
  async get(host: string, ask: Ask = {}): Promise<Reply> {
    const res = await this.open(host, ask);
    return { status: res.statusCode ?? 0, headers: res.headers, body: await text(res) };
  }
}
