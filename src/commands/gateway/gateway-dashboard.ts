import { apiHost } from '../../gateway/endpoints/domain-names.ts';
import { urlOf } from '../../gateway/endpoints/endpoint-address.ts';
import { SIGN_IN_PURPOSE } from '../../gateway/store/command-key.ts';
import { CODE_MINUTES, issueCode } from '../../lib/http/one-time-code.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print } from '../output.ts';
import { withStore } from '../settings-place.ts';

/**
 * Prints a link, and a QR code in a terminal, that sign one browser in to the gateway's dashboard.
 *
 * The link is made here from the gateway's encryption key, so only those who can read that key can make one.
 */
export async function showDashboard(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  const now = Date.now();
  const code = await withStore(settings, (store) => issueCode(store.box.keyFor(SIGN_IN_PURPOSE), now));
  const url = apiUrlOf(settings);
  const link = `${url}/#code=${code}`;
  if (json) {
    const expires_at = new Date(now + CODE_MINUTES * 60_000).toISOString();
    return void print(jsonText({ url, link, expires_at }));
  }
  print(link);
  note(`The link signs one browser in. It works once, within ${CODE_MINUTES} minutes, while the gateway runs.`);
  if (process.stdout.isTTY) note((await import('uqr')).renderANSI(link, { border: 4 }));
}

/** Where the management API and the dashboard are. */
export function apiUrlOf({ apiUrl, domain, httpsPort }: GatewayServerSettings): string {
  return apiUrl ?? urlOf({ protocol: 'https', host: apiHost(domain), port: httpsPort });
}
