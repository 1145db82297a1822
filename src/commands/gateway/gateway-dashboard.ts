import { apiOrigin } from '../../gateway/endpoints/domain-names.ts';
import { dashboardCode, type Store } from '../../gateway/offline/command-store.ts';
import { personDashboardCode } from '../../gateway/sign-in/manage-sign-ins.ts';
import { OperatorError } from '../../lib/errors.ts';
import { CODE_MINUTES } from '../../lib/http/one-time-code.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print } from '../output.ts';
import { withStore } from '../settings-place.ts';
import { personWith } from './gateway-people.ts';

/**
 * Prints a link, and a QR code in a terminal, that sign one browser in to the gateway's dashboard.
 *
 * The link is made here from the gateway's encryption key, so only those who can read that key can make one.
 *
 * @throws {OperatorError} exit code 4 when there is no such person, 2 when they may not use the dashboard
 */
export async function showDashboard(
  settings: GatewayServerSettings,
  { as, json }: { as?: string; json?: boolean },
): Promise<void> {
  const now = Date.now();
  const code = await withStore(settings, (store) =>
    as === undefined ? dashboardCode(store, now) : codeOf(store, settings, as),
  );
  const url = apiUrlOf(settings);
  const link = `${url}/#code=${code}`;
  if (json) {
    const expires_at = new Date(now + CODE_MINUTES * 60_000).toISOString();
    return void print(jsonText({ url, link, expires_at }));
  }
  print(link);
  note(
    `The link signs one browser in${as === undefined ? '' : ` as ${as}`}. It works once, within ${CODE_MINUTES} minutes, while the gateway runs.`,
  );
  if (process.stdout.isTTY) note((await import('uqr')).renderANSI(link, { border: 4 }));
}

function codeOf(store: Store, { domain }: GatewayServerSettings, email: string): string {
  const person = personWith(store, email);
  if (person.dashboard) return personDashboardCode(store, domain.toLowerCase(), person);
  const allow = ownCommand(`gateway people dashboard ${email} allow`);
  throw new OperatorError(`${email} may not use the dashboard; if they should, run: ${allow}`, 2);
}

/** Where the management API and the dashboard are. */
export function apiUrlOf({ apiUrl, domain, httpsPort, ip }: GatewayServerSettings): string {
  return apiOrigin(apiUrl, domain, httpsPort, ip);
}
