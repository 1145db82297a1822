import { join, relative } from 'node:path';
import { type Finding, renderReport } from '../../doctor/finding.ts';
import { gatewayRecords, publicAddresses, zoneLine } from '../../doctor/gateway/gateway-records.ts';
import { hasNoDomain } from '../../gateway/endpoints/domain-names.ts';
import { ownCommand, rootCommand } from '../../lib/process/own-command.ts';
import { wantsColor } from '../../lib/terminal-text.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { apiUrlOf } from './gateway-dashboard.ts';

export interface InitResult {
  settings: GatewayServerSettings;
  file: string;
  isNew: boolean;
  /** What installing the service said; null: a trial without a service. */
  service: readonly string[] | null;
  /** `exists`: an earlier one; null: the service was not started, so that there is no database yet. */
  apiKey: { id: string; token: string } | 'exists' | null;
  /** Id of the destination that is notified of problems; `exists`: there were rules; `not started`: no database; null: nobody. */
  notified: string | null;
  findings: readonly Finding[];
  /** Public addresses from the command line; null: those of this machine. */
  addresses: readonly string[] | null;
}

export function initReportJson(result: InitResult) {
  const { settings, file, isNew, service, apiKey, findings } = result;
  return {
    domain: isAddressOnly(settings) ? null : settings.domain,
    ip: settings.ip,
    api_url: apiUrlOf(settings),
    ca_file: caFileOf(settings),
    settings_file: file,
    created: isNew,
    service: service === null ? null : 'device-agent-gateway',
    records: recordsOf(result),
    findings,
    api_key: apiKey === null || apiKey === 'exists' ? null : apiKey,
    message_destination: result.notified?.startsWith('ed_') ? result.notified : null,
    next: nextSteps(result).map(({ command }) => command),
  };
}

export function describeGateway(result: InitResult): string {
  const { settings, service, findings } = result;
  const steps = nextSteps(result);
  const width = Math.max(...steps.map(({ command }) => command.length));
  return [
    headline(result),
    ...(service ?? []),
    '',
    ...describeRecords(result),
    ...firewall(settings),
    renderReport(findings, wantsColor(process.stdout, process.env)),
    '',
    ...describeKey(result),
    ...describeMessages(result),
    '',
    'Next:',
    '',
    ...steps.map(({ command, why }) => `  ${command.padEnd(width)}  # ${why}`),
  ].join('\n');
}

function headline({ settings, file, isNew, service }: InitResult): string {
  const name = isAddressOnly(settings) ? settings.ip : settings.domain;
  if (!isNew) return `Gateway ${name}: set up before, in ${file}; nothing changed`;
  return service === null ? `Gateway ${name}: settings written to ${file}` : `Gateway ${name}`;
}

function isAddressOnly({ domain, ip }: GatewayServerSettings): boolean {
  return hasNoDomain({ baseDomain: domain.toLowerCase(), ip });
}

function recordsOf({ settings, addresses }: InitResult) {
  return gatewayRecords(settings, addresses ?? (settings.ip === null ? publicAddresses() : [settings.ip]));
}

function describeRecords(result: InitResult): string[] {
  const records = recordsOf(result);
  if (records.length === 0) return [];
  return [
    'DNS records, to add where the domain is managed:',
    '',
    ...records.map((record) => `  ${zoneLine(record)}`),
    '',
  ];
}

function firewall(settings: GatewayServerSettings): string[] {
  const { httpsPort, httpPort, sessionPort, tcpPorts, httpsPorts, ip, challengeDns, host } = settings;
  if (host === '127.0.0.1' || host === '::1') return [];
  const ports = [httpPort, httpsPort, ...(sessionPort === null ? [] : [sessionPort])].map((port) => `${port}/tcp`);
  if (challengeDns !== null) ports.push(`${challengeDns.port}/udp`, `${challengeDns.port}/tcp`);
  if (tcpPorts !== null) ports.push(`${tcpPorts.first}-${tcpPorts.last}/tcp (tcp endpoints)`);
  if (ip !== null && httpsPorts !== null)
    ports.push(`${httpsPorts.first}-${httpsPorts.last}/tcp (https and tls endpoints)`);
  return [`Ports to open in the firewall: ${ports.join(', ')}`, ''];
}

function describeKey({ apiKey }: InitResult): string[] {
  if (apiKey === null) return ['No API key yet: the gateway has not been started.'];
  if (apiKey === 'exists')
    return [`API key: exists already; ${ownCommand('gateway api-key list')} shows all, create makes another.`];
  return [`API key ${apiKey.id}, shown only once:`, '', `  ${apiKey.token}`];
}

function describeMessages({ notified }: InitResult): string[] {
  if (notified === null) return [];
  if (notified === 'not started')
    return ['', 'No messages yet: the gateway has not been started; run this again then.'];
  if (notified === 'exists')
    return ['', `Messages: there are rules already; ${ownCommand('gateway rules')} shows them.`];
  return [
    '',
    `Messages go to ${notified}. When the gateway runs: ${ownCommand(`gateway destinations test ${notified}`)}`,
  ];
}

function nextSteps({ settings, isNew, service, apiKey }: InitResult): { command: string; why: string }[] {
  const { domain, ip } = settings;
  const isTrial = service === null;
  const command = isTrial ? ownCommand : rootCommand;
  const steps = [];
  if (isTrial) steps.push({ command: ownCommand('gateway'), why: 'starts it in this folder; Ctrl-C stops it' });
  else if (apiKey === null) steps.push({ command: 'sudo systemctl start device-agent-gateway', why: 'starts it' });
  else if (isNew && ip !== null && apiKey === 'exists')
    steps.push({ command: 'sudo systemctl restart device-agent-gateway', why: 'lets the domain take effect' });
  if (apiKey === null) steps.push({ command: command('gateway init'), why: 'makes the first API key' });
  if (!isTrial) steps.push({ command: rootCommand('gateway doctor'), why: 'checks DNS, ports and certificates again' });
  steps.push({
    command: command(
      isAddressOnly(settings) ? 'gateway invite' : `gateway invite --site '*.sitea.${siteZone(domain)}'`,
    ),
    why: isTrial ? 'in another terminal: prints the line for devices' : 'prints the line for devices of a site',
  });
  return steps;
}

/** Sites usually are siblings of the gateway; names below a name like localhost need no DNS. */
function siteZone(domain: string): string {
  const [, ...parent] = domain.split('.');
  return parent.length > 1 ? parent.join('.') : domain;
}

function caFileOf({ dataDir }: GatewayServerSettings): string {
  const file = join(dataDir, 'gateway', 'ca.pem');
  const here = relative(process.cwd(), file);
  return here.startsWith('..') ? file : here;
}
