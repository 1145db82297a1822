import { join } from 'node:path';
import { messageOf } from '../../lib/errors.ts';
import type { Cluster } from '../cluster/cluster.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { Relays } from '../edge/relays/relays.ts';
import type { SessionServer } from '../sessions/session-server.ts';
import type { Ask } from '../store/shared/postgres-connection.ts';
import { HistoryElsewhere, type HistoryQuestion, partsText } from './history-elsewhere.ts';
import { HistoryFile } from './history-file.ts';
import { SharedHistory } from './shared-history.ts';
import { TrafficHistory } from './traffic-history.ts';

interface HistoryPlace {
  readonly folder: string;
  /** What this gateway is called among others. */
  readonly node: string;
  readonly sessions: SessionServer;
  /** Null: this gateway is the only one. */
  readonly others: { readonly ask: Ask; readonly relays: Relays; readonly cluster: Cluster } | null;
}

/** Keeps the history of a gateway from now on, until it stops. @returns null: it keeps none, or cannot, which is logged */
export async function startHistory(
  context: GatewayContext,
  { folder, node, sessions, others }: HistoryPlace,
): Promise<TrafficHistory | null> {
  const { options, store, log, onStop } = context;
  const days = options.historyDays ?? 0;
  // A folder that cannot be written has nothing new to tell.
  if (days === 0 || store.database.temporary !== null) return null;
  try {
    const file = HistoryFile.open(join(folder, 'history.db'), days, log);
    const elsewhere =
      others &&
      new HistoryElsewhere(
        new SharedHistory(others.ask, node, days),
        (question) => others.cluster.askOthers(others.relays, 'history', question),
        { node, begun: () => file.begun },
        log,
      );
    const history = new TrafficHistory(context, { file, node, ...(elsewhere && { elsewhere }) });
    await history.start();
    history.follow(context.endpoints, sessions);
    onStop(() => history.stop());
    return history;
  } catch (error) {
    log.error({ reason: messageOf(error) }, 'history not kept: its file cannot be used');
    return null;
  }
}

/** The answer to another gateway that asks for the history here. @param details its question, as JSON */
export async function historyAnswer(history: TrafficHistory | null, details: string): Promise<string> {
  if (history === null) return partsText([], 0);
  const question = JSON.parse(details) as HistoryQuestion;
  if (question.top !== undefined) return partsText([], history.begun, history.topHere(question.top));
  return partsText(await history.here(question), history.begun);
}
