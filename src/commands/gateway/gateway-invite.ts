import type { z } from 'zod';
import { createEnrolmentKey, type GatewayPlace, joinCode } from '../../gateway/devices/invite.ts';
import { dnsTargets, gatewayDomains, hasNoDomain, joinOrigin } from '../../gateway/endpoints/domain-names.ts';
import { casForCode, type Row, type Store } from '../../gateway/offline/command-store.ts';
import { ApiError, OperatorError } from '../../lib/errors.ts';
import { isBelowLocalhost } from '../../lib/network/loopback-names.ts';
import { describePortRange } from '../../lib/network/port-range.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { validationMessage } from '../../lib/validation-messages.ts';
import { requiredRecords, zoneFileLine } from '../../management/cname-record.ts';
import { EnrolmentKeyCreate, EnrolmentKeyFilters } from '../../management/resources/enrolment.ts';
import { refusalOf } from '../../management/resources/refusal.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, table } from '../output.ts';
import { withStore } from '../settings-place.ts';

export interface InviteOptions {
  site?: string;
  uses: number;
  /** Milliseconds; null: never. */
  expires: number | null;
  approve?: boolean;
  tcp?: string;
  ownNamesOnly?: boolean;
  internal?: boolean;
  label?: Record<string, string>;
  description?: string;
  json?: boolean;
}

const MAX_LISTED = 10_000;

/**
 * Creates an enrolment key, with its site and bot user if they are missing, and prints the code; works while the gateway
 * runs or not.
 *
 * @throws {OperatorError} exit code 2 for an option that is not valid
 */
export async function invite(settings: GatewayServerSettings, options: InviteOptions): Promise<void> {
  const body = EnrolmentKeyCreate.safeParse(
    {
      site: siteOf(options, settings),
      max_uses: options.uses,
      expires_at: options.expires === null ? undefined : new Date(Date.now() + options.expires).toISOString(),
      needs_approval: options.approve === true,
      tcp_ports: options.tcp,
      own_names_only: options.ownNamesOnly === true,
      internal_names: options.internal === true,
      labels: options.label ?? {},
      description: options.description,
    },
    { error: validationMessage },
  );
  if (!body.success) throw new OperatorError(refusalOf(body.error).text, 2);
  const domains = gatewayDomains(settings.domain.toLowerCase(), settings.ip, settings.httpsPorts);
  await withStore(settings, async (store) => {
    const place = placeOf(settings, store);
    const { key, secret } = await store.database
      .write(() => createEnrolmentKey(store, domains, body.data))
      .catch((error: unknown) => {
        throw error instanceof ApiError ? new OperatorError(error.message, 2) : error;
      });
    const code = joinCode(place, secret);
    const wildcard = `*.${key.site}`;
    const isBase = key.site === domains.baseDomain;
    const targets = isBase || isBelowLocalhost(wildcard) ? null : dnsTargets(wildcard, store.account, domains);
    const records = targets === null ? [] : requiredRecords({ domain: wildcard, ...targets }).map(zoneFileLine);
    const command = `echo ${code} | sudo device-agent join -`;
    const result = { id: key.id, site: wildcard, code, command, expires_at: key.expires_at, max_uses: key.max_uses };
    if (options.json) return void print(jsonText({ ...result, dns_records: records }));
    print(await describe(key, { code, command, records }));
  });
}

/** The names of a gateway without a domain are below localhost: nobody looks them up. */
function siteOf({ site }: InviteOptions, { domain, ip }: GatewayServerSettings): string {
  const baseDomain = domain.toLowerCase();
  if (!hasNoDomain({ baseDomain, ip })) {
    if (site !== undefined) return site;
    throw new OperatorError("no site: add --site, such as --site '*.sitea.example.com'", 2);
  }
  const word = site ?? 'devices';
  return /^[\w-]+$/.test(word) ? `${word}.${baseDomain}` : word;
}

async function describe(
  key: Row<'enrolmentKeys'>,
  { code, command, records }: { code: string; command: string; records: readonly string[] },
): Promise<string> {
  const { renderUnicodeCompact, renderANSI } = await import('uqr');
  const options = { border: 2, ecc: 'L' } as const;
  const picture = process.stdout.isTTY ? renderANSI(code, options) : renderUnicodeCompact(code, options);
  const until = key.expires_at === null ? '' : ` until ${key.expires_at}`;
  const devices = key.max_uses === 1 ? '1 device' : `${key.max_uses} devices`;
  const dns =
    records.length === 0 ? [] : ['', `DNS records for *.${key.site}, where they are missing:`, ...indent(records)];
  return [
    `Code ${key.id} for ${devices} of *.${key.site}${until}, shown only once:`,
    '',
    code,
    '',
    picture,
    '',
    'On each device:',
    `  ${command}`,
    ...(key.needs_approval ? ['Then, here:', `  ${ownCommand('gateway devices approve <name>')}`] : []),
    ...dns,
  ].join('\n');
}

const indent = (lines: readonly string[]): string[] => lines.map((line) => `  ${line}`);

/** How devices reach the gateway, by its settings. */
function placeOf(
  settings: GatewayServerSettings,
  store: Store,
): Pick<GatewayPlace, 'origin' | 'isProxied' | 'caPem' | 'nextCaPem' | 'publicNames'> {
  const { apiUrl, domain, httpsPort, ip, acme } = settings;
  const origin = joinOrigin(apiUrl, domain.toLowerCase(), httpsPort, ip);
  return { ...origin, ...casForCode(settings, store), publicNames: acme?.ownNames ?? 'none' };
}

/** What a list is limited to and sorted by, and how it is printed. */
export interface InviteChoice extends z.input<typeof EnrolmentKeyFilters> {
  json?: boolean;
}

export async function listInvites(settings: GatewayServerSettings, { json, ...chosen }: InviteChoice): Promise<void> {
  await withStore(settings, (store) => {
    const { data: filters, error } = EnrolmentKeyFilters.safeParse(chosen, { error: validationMessage });
    if (error) throw new OperatorError(refusalOf(error).text, 2);
    const { items: keys } = store.enrolmentKeys.chosen(null, MAX_LISTED, filters, store.now());
    if (json) {
      const shown = keys.map(({ secret_hash: _, tcp_ports, ...row }) => ({
        ...row,
        tcp_ports: tcp_ports && describePortRange(tcp_ports),
      }));
      return void print(jsonText(shown));
    }
    if (keys.length === 0 && Object.keys(chosen).length > 0) return void note('No code matches.');
    if (keys.length === 0) {
      note(`No codes. Make one with: ${ownCommand("gateway invite --site '*.site-a.example.com'")}`);
      return;
    }
    const rows = keys.map((key) => [
      key.id,
      `*.${key.site}`,
      `${key.uses} of ${key.max_uses ?? 'any'}`,
      stateOf(key, store),
      key.expires_at ?? 'never',
      labelsOf(key.labels),
    ]);
    print(table(['ID', 'SITE', 'USED', 'STATE', 'EXPIRES', 'LABELS'], rows));
  });
}

export function labelsOf(labels: Readonly<Record<string, string>>): string {
  const text = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return text.join(',');
}

function stateOf({ revoked_at, expires_at, max_uses, uses }: Row<'enrolmentKeys'>, store: Store): string {
  if (revoked_at !== null) return 'revoked';
  if (expires_at !== null && expires_at <= store.now()) return 'expired';
  return max_uses !== null && uses >= max_uses ? 'used up' : 'valid';
}

/**
 * Revokes an enrolment key, at once, also while the gateway runs.
 *
 * @throws {OperatorError} exit code 4 when there is none with the id
 */
export async function revokeInvite(settings: GatewayServerSettings, id: string): Promise<void> {
  await withStore(settings, async (store) => {
    const isKnown = await store.database.write(() => {
      const key = store.enrolmentKeys.get(id);
      if (key) store.enrolmentKeys.update({ ...key, revoked_at: key.revoked_at ?? store.now() });
      return key !== null;
    });
    if (!isKnown) throw new OperatorError(`no code has this id: ${ownCommand('gateway invites')} shows the ids`, 4);
    print(`${id} revoked`);
  });
}
