import { OperatorError } from '../lib/errors.ts';
import type { Log } from '../lib/log/log.ts';
import type { OwnNamesChoice } from '../settings/certificate-settings.ts';
import type { GatewayOptions } from './context/gateway-options.ts';
import { DatabaseAway, DatabaseBusy } from './store/sql/database-problems.ts';
import type { Store } from './store/store.ts';

/** Row of `facts` with the settings that decide about what all gateways share, as JSON. */
const FACT = 'equal_settings';
const OWN_NAMES = 'GATEWAY_ACME_OWN_NAMES';
/** How a setting reads in an error that is not set. */
const UNSET = '';

type EqualSettings = Record<string, string>;

/**
 * Compares settings with those of the other gateways: the first one to start writes them, and so does one that starts while no
 * other serves.
 *
 * @param othersServe whether another gateway does
 * @returns the options, with what is not set here as the database knows it
 * @throws {OperatorError} when a setting differs
 */
export async function withEqualSettings(
  options: GatewayOptions,
  { database }: Pick<Store, 'database'>,
  { othersServe, log }: { othersServe: () => boolean; log: Log },
): Promise<GatewayOptions> {
  const own = equalSettings(options);
  const read = (): EqualSettings => JSON.parse(database.fact(FACT) ?? '{}') as EqualSettings;
  const isKnown = (known: EqualSettings) => Object.entries(own).every(([name, value]) => known[name] === value);
  let isUnset = own[OWN_NAMES] === undefined;
  if (!isKnown(read()) && database.unwritable === null) {
    try {
      await database.write(() => {
        const known = read();
        database.setFact(FACT, JSON.stringify(othersServe() ? { ...own, ...known } : { ...known, ...own }));
      });
    } catch (error) {
      if (!(error instanceof DatabaseAway || error instanceof DatabaseBusy)) throw error;
      // Whether another gateway serves is not known: nothing changes.
      isUnset = true;
    }
  }
  const known = read();
  if (othersServe()) requireEqual(own, known);
  const { acme = null } = options;
  if (!isUnset || known[OWN_NAMES] === undefined || acme === null) return options;
  log.info({ setting: OWN_NAMES, value: known[OWN_NAMES] }, 'setting taken from the database');
  return { ...options, acme: { ...acme, ownNames: known[OWN_NAMES] as OwnNamesChoice } };
}

function equalSettings({ domain, apiUrl, acme, challengeDns, keepsOwnNames = false }: GatewayOptions): EqualSettings {
  return {
    GATEWAY_DOMAIN: domain.toLowerCase(),
    GATEWAY_API_URL: apiUrl ?? UNSET,
    GATEWAY_ACME_DIRECTORY: acme?.directoryUrl ?? 'local',
    GATEWAY_DNS_NAMESERVER: challengeDns?.nameServer ?? UNSET,
    ...(!keepsOwnNames && { [OWN_NAMES]: acme?.ownNames ?? 'none' }),
  };
}

function requireEqual(own: EqualSettings, known: EqualSettings): void {
  const shown = (value: string | undefined) => (value ? `"${value}"` : 'not set');
  const differences = Object.entries(own)
    .filter(([name, value]) => known[name] !== undefined && known[name] !== value)
    .map(([name, value]) => `${name} is ${shown(value)} here and ${shown(known[name])} at the other gateways`);
  if (differences.length === 0) return;
  throw new OperatorError(
    `${differences.join('; ')}: set the same here; to change it for all, stop the other gateways before this one starts`,
    2,
  );
}
