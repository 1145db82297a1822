/**
 * Clients that connect when they are told to. Arguments: JSON, see {@link SessionClients}. Each SIGUSR2 has all of them connect, or
 * disconnect, in turn; prints {online} when they have.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type TLSSocket } from 'node:tls';
import { SessionBuilder } from '@ngrok/ngrok';
import { openNativeLink } from '../src/agent/connectors/native/native-session.ts';
import { Limiter } from '../src/lib/limiter.ts';
import { NO_PROXIES } from '../src/lib/network/proxy-rules.ts';
import { systemClock } from '../src/lib/time/clock.ts';
import { upstreamAt } from '../test/support/connectors.ts';
import { silentLog } from '../test/support/silent-log.ts';

export interface SessionClients {
  /** `native reconnecting`: the agents of the rounds before; `bare`: TLS connections with one exchange. */
  kind: 'sdk' | 'native' | 'native reconnecting' | 'bare';
  address: string;
  caFile: string;
  authtoken: string;
  count: number;
  /** Of each native client; left out: one. */
  endpoints?: number;
}

/** Goes online; returns what takes it offline again. */
type Client = (round: number) => Promise<() => void | Promise<void>>;

/** Clients that connect at the same time. */
const AT_ONCE = 16;
const UPSTREAM = 'http://127.0.0.1:9';

const {
  kind,
  address,
  caFile,
  authtoken,
  count,
  endpoints = 1,
} = JSON.parse(process.argv[2] ?? '{}') as SessionClients;
const ca = readFileSync(caFile);

function sdk(name: string): Client {
  return async (round) => {
    const session = await new SessionBuilder().serverAddr(address).caCert(ca).authtoken(authtoken).connect();
    const listener = await session.httpEndpoint().domain(`${name}-${round}.localhost`).listen(false);
    return async () => {
      await session.close();
      // Fails without a session, but the SDK removes the listener in any case.
      await listener.close().catch(() => {});
    };
  };
}

function native(name: string): Client {
  const open = () =>
    openNativeLink({
      ...{ authtoken: () => authtoken, serverAddr: address, authorities: { pem: ca }, proxies: NO_PROXIES },
      ...{ verifyUpstreamTls: true, version: 'bench', log: silentLog, clock: systemClock },
    });
  // With it, an agent resumes what it had.
  let link = open();
  return async (round) => {
    if (kind === 'native') link = open();
    const label = `${name}-${process.pid}-${kind === 'native' ? round : 0}`;
    const session = await link.connect();
    for (let number = 0; number < endpoints; number += 1) {
      const domain = `${label}-${number}.localhost`;
      await session.open({ protocol: 'http', domain, upstream: upstreamAt(UPSTREAM), forwardsTo: UPSTREAM });
    }
    return () => session.end('the round is over');
  };
}

function bare(): Client {
  const [host, port] = address.split(':');
  return async () => {
    const socket: TLSSocket = connect({ host, port: Number(port), ca });
    await once(socket, 'secureConnect');
    socket.write('a request');
    await once(socket, 'data');
    return () => void socket.destroy();
  };
}

const clients = Array.from({ length: count }, (_, i): Client => {
  if (kind === 'bare') return bare();
  return kind === 'sdk' ? sdk(`client-${i}`) : native(`client-${i}`);
});
const limiter = new Limiter(AT_ONCE);
let leave: Awaited<ReturnType<Client>>[] = [];
let round = 0;

async function turn(): Promise<void> {
  if (leave.length > 0) {
    await Promise.all(leave.splice(0).map((one) => one()));
  } else {
    round += 1;
    leave = await Promise.all(clients.map((client) => limiter.run(() => client(round))));
  }
  console.log(JSON.stringify({ online: leave.length }));
}

process.on('SIGUSR2', () => void turn());
console.log(JSON.stringify({ online: 0 }));
// Signals do not keep a process alive.
setInterval(() => {}, 60_000);
