import { once, setMaxListeners } from 'node:events';
import type { AddressInfo, Server } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { StreamType } from '../../src/agent-protocol/messages.ts';
import { ProtocolAgent } from '../support/protocol-agent.ts';
import { type Life, openTls, repeat, type Target } from './attack.ts';

export const bind = (agent: ProtocolAgent, proto: string, opts: object) =>
  agent.call(StreamType.bind, JSON.stringify({ Id: '', Proto: proto, Opts: opts, Extra: { PoolingEnabled: true } }));

export const onRequest = (...rules: object[]) => JSON.stringify({ on_http_request: rules });
export const action = (type: string, config: object) => ({ actions: [{ type, config }] });

/** Ends a policy with an answer, so that no upstream is needed. */
export const ANSWER = action('custom-response', { status_code: 200, body: 'x' });

interface Wanted {
  /** Which one of the hostile authtokens has it. */
  tenant?: number;
  proto?: 'https' | 'tls';
  /** The options, which may name a server that is started for it. */
  options(target: Target): object | Promise<object>;
}

/** An endpoint of a hostile tenant, whose clients are the attack. It is bound when it is first used, and again when it is lost. */
export class HostileEndpoint {
  #agent: Promise<ProtocolAgent> | null = null;

  constructor(
    readonly host: string,
    private readonly wanted: Wanted,
  ) {}

  /** @throws Error when the gateway refuses it, or the attacker leaves meanwhile */
  online(life: Life): Promise<void> {
    const left = new Promise<never>((_, reject) => {
      const leave = () => reject(new Error('the attacker has left'));
      if (life.signal.aborted) leave();
      life.signal.addEventListener('abort', leave, { once: true });
    });
    return Promise.race([this.#bind(life), left]);
  }

  async #bind({ target, from }: Life): Promise<void> {
    const known = await this.#agent;
    if (known !== null && !known.socket.destroyed) return;
    this.#agent = this.#bound(target, from).catch(async (error: unknown) => {
      // Another one tries again, rather than each connection of the attack.
      await wait(1000);
      this.#agent = null;
      throw error;
    });
    await this.#agent;
  }

  async #bound(target: Target, from: string): Promise<ProtocolAgent> {
    const { tenant = 0, proto = 'https', options } = this.wanted;
    const authtoken = target.authtokens[tenant] ?? '';
    const agent = await ProtocolAgent.open({ target: { ...target, authtoken }, from, signal: STAYS });
    const answer = await bind(agent, proto, { Domain: this.host, ...(await options(target)) });
    const { Error: problem = '' } = JSON.parse(answer || '{"Error":"no answer"}') as { Error?: string };
    if (problem === '') return agent;
    agent.socket.destroy();
    throw new Error(`${this.host}: ${problem}`);
  }

  /** Sends a request again and again over one connection, for as long as the attacker stays. */
  async ask(life: Life, everyMs: number, request = (): string | Buffer => getOf(this.host)): Promise<void> {
    await this.online(life);
    await askAgain(life, this.host, everyMs, request);
  }
}

/** Sessions of hostile tenants last for as long as the process. */
const STAYS = new AbortController().signal;
setMaxListeners(0, STAYS);

export const getOf = (host: string, path = '/', headers = '') =>
  `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${headers}\r\n`;

export function postOf(host: string, body: Buffer, headers = ''): Buffer {
  const head = `POST / HTTP/1.1\r\nHost: ${host}\r\n${headers}Content-Length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

/** Sends a request again and again over one connection. */
export async function askAgain(
  life: Life,
  host: string,
  everyMs: number,
  request: () => string | Buffer,
): Promise<void> {
  const socket = await openTls(life.target.httpsPort, host, life);
  await repeat(socket, everyMs, () => socket.write(request()));
}

/** Starts a server of the attackers when it is first needed. @returns its port */
export function lazyServer(make: (target: Target) => Server): (target: Target) => Promise<number> {
  let started: Promise<number> | null = null;
  const start = async (target: Target) => {
    const server = make(target);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  };
  return (target) => {
    started ??= start(target);
    return started;
  };
}
