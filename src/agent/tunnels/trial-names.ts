import type { Log } from '../../lib/log/log.ts';
import { isBelowLocalhost } from '../../lib/network/loopback-names.ts';
import type { TunnelView } from './tunnel-list.ts';

/** Codes for a name that the gateway does not serve or the authtoken may not use. */
const NAME_REFUSED = ['ERR_NGROK_307', 'ERR_NGROK_316', 'ERR_NGROK_319', 'ERR_NGROK_320'];

/**
 * Logs how to move tunnels of a trial with the embedded gateway. Another gateway refuses their names, all of which are
 * below localhost.
 */
export function offerToMove(tunnels: readonly TunnelView[], log: Log): void {
  const refused = tunnels.filter(
    ({ tunnel, status }) => NAME_REFUSED.includes(status.lastError?.code ?? '') && isTrialName(tunnel.domain),
  );
  if (refused.length === 0) return;
  const command = "device-agent tunnels move --to '*.<domain of the site>'";
  log.warn({ count: refused.length, command }, 'the gateway refuses names below localhost; move these tunnels');
}

/** @param domain for tcp with a port */
function isTrialName(domain: string): boolean {
  const host = domain.replace(/:\d+$/, '');
  return host === 'localhost' || isBelowLocalhost(host);
}
