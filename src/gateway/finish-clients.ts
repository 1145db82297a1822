import type { Socket } from 'node:net';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import type { EdgeServer } from './edge/edge-server.ts';
import type { Relays } from './edge/relays/relays.ts';
import type { TcpListeners } from './edge/streams/tcp-listeners.ts';
import type { SessionServer } from './sessions/session-server.ts';

/** How long connections that are open when the gateway begins to stop may take, in milliseconds. */
const OPEN_MS = 5_000;
/** The same for those that come meanwhile, once no more are accepted: the next ones wait so long. */
const LAST_MS = 1_500;
const CHECK_MS = 20;

/**
 * Lets clients finish what they have under way, before the gateway closes. For 5 s at most, it waits for the connections that are
 * open, and serves new ones meanwhile: nobody waits for the download of somebody else. Then it accepts no more. Where a service
 * manager holds the sockets, new connections wait for the next process; so those that came last have 1.5 s only. All sessions
 * of agents stay, as requests need them, except those of agents that have another one at another gateway. Sessions that this gateway
 * has passed on to others end last, within those 1.5 s: their agents would come back here as long as it accepts connections.
 */
export async function finishClients(
  edge: Pick<EdgeServer, 'clients' | 'finish' | 'stopListening'>,
  tcp: Pick<TcpListeners, 'clients' | 'stopListening'> | null,
  sessions: Pick<SessionServer, 'handOver' | 'stopListening'>,
  relays: Pick<Relays, 'agents' | 'releaseAgents'> | null,
): Promise<void> {
  const clients = () => [...edge.clients(), ...(tcp?.clients() ?? [])];
  const untilEnded = async (open: () => readonly Socket[], ms: number) => {
    const end = performance.now() + ms;
    for (;;) {
      // Timers run before sockets are read: a request that has arrived must not find its connection ended.
      await nextTurn();
      edge.finish();
      if (open().every((socket) => socket.destroyed) || performance.now() >= end) return;
      await delay(CHECK_MS);
    }
  };
  sessions.handOver();
  const before = new Set(clients());
  await untilEnded(() => [...before], OPEN_MS);
  edge.stopListening();
  tcp?.stopListening();
  sessions.stopListening();
  relays?.releaseAgents();
  const agents = () => relays?.agents() ?? [];
  await untilEnded(() => [...clients().filter((socket) => !before.has(socket)), ...agents()], LAST_MS);
}
