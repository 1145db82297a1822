import type { Log } from '../../lib/log/log.ts';
import { isBelowLocalhost } from '../../lib/network/loopback-names.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { Connector } from '../connectors/connector.ts';
import type { AgentContext } from '../context/agent-context.ts';
import type { TunnelState } from './tunnel.ts';
import type { TunnelList, TunnelView } from './tunnel-list.ts';

/** With more tunnels, a start logs only how many are online: log writes wear out SD cards. */
const MAX_NAMED_AT_START = 20;

/** Logs what concerns one tunnel; the loss and the return of a session concern all, and have lines of their own. */
export class TunnelLog {
  #sessions = 0;
  /** When the session came online; null once all tunnels have settled. */
  #settlingSince: number | null = null;

  constructor(
    private readonly context: Pick<AgentContext, 'clock' | 'log'>,
    private readonly list: Pick<TunnelList, 'size' | 'counts' | 'values'>,
    private readonly connector: Pick<Connector, 'isOnline'>,
  ) {}

  sessionOnline(): void {
    this.#sessions++;
    const { clock } = this.context;
    const { list } = this;
    this.#settlingSince = list.size > 0 ? clock.now() : null;
  }

  sessionLost(): void {
    this.#settlingSince = null;
  }

  /**
   * Logs that a tunnel came online or went offline, and once after the start of a session how all of them are.
   *
   * @param isFirst whether the tunnel had not been online before
   */
  changed(tunnel: TunnelView, before: TunnelState, isFirst: boolean): void {
    this.#logChange(tunnel, before, isFirst);
    this.#logSettled();
  }

  #logChange({ url, tunnel, status }: TunnelView, before: TunnelState, isFirst: boolean): void {
    const { log } = this.context;
    const { list, connector } = this;
    const isOnline = status.state === 'online';
    if (isOnline === (before === 'online')) return;
    if (isOnline) {
      const isNamed = isFirst && list.size <= MAX_NAMED_AT_START;
      if (isNamed || before === 'failed') log.info({ url, upstream: tunnel.forwards_to }, 'tunnel online');
      return;
    }
    // The end of a session reaches its tunnels first, and the connector's status within the same turn of the event loop.
    const session = this.#sessions;
    setImmediate(() => {
      if (!connector.isOnline || this.#sessions !== session) return;
      log.info({ url, reason: status.lastError?.message }, 'tunnel offline');
    });
  }

  #logSettled(): void {
    const { clock, log } = this.context;
    const { list } = this;
    const { connecting, offline, online, failed } = list.counts;
    if (this.#settlingSince === null || connecting + offline > 0) return;
    const after_ms = Math.round(clock.now() - this.#settlingSince);
    this.#settlingSince = null;
    if (failed === 0) log.info({ online, failed, after_ms }, 'tunnels online');
    else log.warn({ online, failed, after_ms }, 'some tunnels are not online');
    if (failed > 0) offerToMove(list.values(), log);
  }
}

/** Codes for a name that the gateway does not serve or the authtoken may not use. */
const NAME_REFUSED = ['ERR_NGROK_307', 'ERR_NGROK_316', 'ERR_NGROK_319', 'ERR_NGROK_320'];

/**
 * Logs how to move tunnels of a trial with the embedded gateway. Another gateway refuses their names, all of which are
 * below localhost.
 */
function offerToMove(tunnels: Iterable<TunnelView>, log: Log): void {
  const refused = [...tunnels].filter(
    ({ tunnel, status }) => NAME_REFUSED.includes(status.lastError?.code ?? '') && isTrialName(tunnel.domain),
  );
  if (refused.length === 0) return;
  const command = ownCommand("tunnels move --to '*.<domain of the site>'");
  log.warn({ count: refused.length, command }, 'the gateway refuses names below localhost; move these tunnels');
}

/** @param domain for tcp with a port */
function isTrialName(domain: string): boolean {
  const host = domain.replace(/:\d+$/, '');
  return host === 'localhost' || isBelowLocalhost(host);
}
