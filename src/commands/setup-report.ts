import { basename } from 'node:path';
import { type CnameRecord, zoneFileLine } from '../management/cname-record.ts';
import type { Authtoken, ProvisionEvent, Provisioned } from '../management/provision.ts';

/** The gateway that the device's agent connects to. */
export interface AgentGateway {
  /** `host:port`. */
  serverAddr: string;
  /** Path of the CA certificate on the device; null when it was not chosen. */
  caCert: string | null;
  /** The CA certificate that the management API was called with; null: the public CAs. */
  apiCaFile: string | null;
}

export function describeProgress(event: ProvisionEvent): string {
  switch (event.step) {
    case 'domain':
      return line('domain', `${event.domain.domain} (${event.domain.id}) ${event.outcome}`);
    case 'bot':
      return line('bot user', `${event.bot.name} (${event.bot.id}) ${event.outcome}`);
    case 'records':
      return describeRecords(event.records);
    case 'dns':
      return line('DNS', `${event.record.name} ${event.inPlace ? 'is in place' : `is missing: ${event.found}`}`);
    case 'certificate':
      return line('certificate', event.message + (event.retriesAt === null ? '' : ` Next try: ${event.retriesAt}.`));
  }
}

function line(what: string, text: string): string {
  return `${what.padEnd(12)} ${text}`;
}

function describeRecords(records: readonly CnameRecord[]): string {
  if (records.length === 0) return line('DNS', 'no records needed: the gateway serves this name itself');
  const lines = records.map((record) => `  ${zoneFileLine(record)}`);
  return ['', 'Add these records where the domain is managed:', '', ...lines, ''].join('\n');
}

export function describeWait(minutes: number): string {
  return `Waiting up to ${minutes} minutes for them and the certificate. Ctrl-C is safe: run the same command again later.`;
}

/**
 * Lines for the device's `.env`; those that the operator must complete are comments.
 *
 * @param gateway null: ngrok's cloud, the agent's default
 */
export function envLines({ authtoken, domain }: Provisioned, gateway: AgentGateway | null): string[] {
  const token = authtoken.kind === 'created' ? `NGROK_AUTHTOKEN=${authtoken.token}` : '# NGROK_AUTHTOKEN=';
  // Without a wildcard, the tunnel needs the only name.
  const agentDomain = domain.domain.startsWith('*.') ? [`AGENT_DOMAIN=${domain.domain.replace(/^\*/, 'agent')}`] : [];
  if (gateway === null) return [token, ...agentDomain];
  return [token, `NGROK_SERVER_ADDR=${gateway.serverAddr}`, ...caLines(gateway), ...agentDomain];
}

function caLines({ caCert, apiCaFile }: AgentGateway): string[] {
  if (caCert !== null) return [`NGROK_CA_CERT=${caCert}`];
  if (apiCaFile !== null)
    return [`# copy ${apiCaFile} to the device, beside .env`, `NGROK_CA_CERT=${basename(apiCaFile)}`];
  return ["# NGROK_CA_CERT=gateway-ca.pem  (a copy of the gateway's ca.pem; host with GATEWAY_ACME_OWN_NAMES=all)"];
}

export function describeResult(result: Provisioned, env: readonly string[]): string {
  const pending =
    result.certificate === 'pending' ? ['The certificate is pending; the gateway gets it once DNS is in place.'] : [];
  return [...pending, ...describeAuthtoken(result.authtoken), '', "Lines for the device's .env:", '', ...env].join(
    '\n',
  );
}

function describeAuthtoken(authtoken: Authtoken): string[] {
  switch (authtoken.kind) {
    case 'created':
      return [
        line('authtoken', `${authtoken.id} created; its value is shown only once`),
        ...authtoken.notDeleted.map(({ id, reason }) =>
          line('', `cannot delete the replaced authtoken ${id}, which still works: ${reason}; delete it by hand`),
        ),
      ];
    case 'existing':
      return [
        line('authtoken', `${authtoken.id} exists from an earlier run; its value cannot be shown again`),
        line('', 'run again with --rotate for a new one; agents with the old one go offline'),
      ];
    case 'by-hand':
      return [
        'Create the authtoken in the dashboard:',
        '  1. open the authtokens page (ngrok: https://dashboard.ngrok.com/authtokens) and add one',
        `  2. owner: the bot user ${authtoken.owner}`,
        `  3. ACL rule: ${authtoken.acl}`,
        '  4. save and copy the value, which is shown only once',
      ];
  }
}
