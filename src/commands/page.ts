import { callAgent, type StatusReport } from '../agent/api-client.ts';
import { OperatorError } from '../lib/errors.ts';
import { CODE_MINUTES, issueCode } from '../lib/http/one-time-code.ts';
import { ownCommand } from '../lib/process/own-command.ts';
import { printableMembers } from '../lib/terminal-text.ts';
import { apiTokenIfAny } from '../settings/api-token.ts';
import { jsonText, print } from './output.ts';
import { agentSettings } from './settings-place.ts';

/** What `device-agent page --json` prints. */
interface PageAddresses {
  /** For browsers on this device. */
  local: string | null;
  /** Signs one browser in, from anywhere; null without AGENT_DOMAIN. */
  link: string | null;
  expires_at: string | null;
}

/**
 * Prints where the agent's page is, with a link and a QR code that sign one browser in at the agent's own domain.
 *
 * The link is made here from the API token, so only those who can read that token can make one.
 *
 * @throws {OperatorError} exit code 3 when no agent answers, 1 when this user cannot read the API token
 */
export async function showPage(options: { json?: boolean }): Promise<void> {
  const settings = agentSettings('data');
  const { addresses, remote_api: own } = await callAgent(settings, 'GET /status');
  const now = Date.now();
  const link = own === null ? null : `${own.url}/${settings.api.requireToken ? `#code=${newCode(settings, now)}` : ''}`;
  const page: PageAddresses = {
    local: addresses.api ?? null,
    link,
    expires_at: link?.includes('#') ? new Date(now + CODE_MINUTES * 60_000).toISOString() : null,
  };
  print(options.json ? jsonText(page) : await describe(printableMembers(page), own));
}

function newCode(settings: Parameters<typeof apiTokenIfAny>[0], now: number): string {
  const token = apiTokenIfAny(settings);
  if (token !== null) return issueCode(token, now);
  throw new OperatorError("cannot read the API token: run this as the agent's user, or with sudo");
}

async function describe({ local, link, expires_at }: PageAddresses, own: StatusReport['remote_api']): Promise<string> {
  const lines = [`On this device:  ${local}`];
  if (link === null) {
    lines.push('From elsewhere:  set AGENT_DOMAIN to reach the page at a domain of its own');
    return lines.join('\n');
  }
  lines.push(`From elsewhere:  ${link}`);
  if (expires_at !== null) lines.push(`The link signs one browser in. It works once, within ${CODE_MINUTES} minutes.`);
  if (own && own.status !== 'online')
    lines.push(`The domain is not online now (${own.status}); see: ${ownCommand('doctor')}`);
  if (process.stdout.isTTY) lines.push('', (await import('uqr')).renderANSI(link, { border: 4 }));
  return lines.join('\n');
}
