import type { GatewayLink } from '../agent/open-link.ts';
import { hasErrno, messageOf } from '../lib/errors.ts';
import { ProxyFailure } from '../lib/network/dial.ts';
import { hostPort } from '../lib/network/ip-address.ts';
import { displayProxy } from '../lib/network/proxy-rules.ts';
import { distrustKind, PORTAL_ADVICE, SILENCE_ADVICE, type TlsAnswer } from '../lib/tls/tls-probe.ts';
import { isDateCode } from '../lib/tls/trusted-time.ts';
import { type Check, check, failed, ok, type Result, skipped } from './finding.ts';

/** `inTime`: whether the certificate is trusted at the time that the gateway proves, or why not; left out: not asked. */
export type Reach = { presented: TlsAnswer; inTime?: true | string } | { error: unknown };

/** Something accepts connections, but does not answer. */
export class Silence extends Error {}

/** Checks that the gateway answers with a trusted certificate; null: the gateway is embedded. */
export function gatewayCheck(
  link: Pick<GatewayLink, 'address' | 'proxy'> | null,
  reach: Promise<Reach> | null,
  isCloud: boolean,
): Check {
  return check('gateway', 'Gateway', async () => {
    if (!link || !reach) return skipped('embedded in the agent');
    const found = await reach;
    const where =
      hostPort(link.address.host, link.address.port) + (link.proxy ? ` (through ${displayProxy(link.proxy)})` : '');
    return 'error' in found ? unreachable(where, found.error) : judge(where, found, isCloud);
  });
}

export function isTrusted(reach: Reach): boolean {
  return 'presented' in reach && (reach.presented.distrust === null || reach.inTime === true);
}

function judge(where: string, { presented: answer, inTime }: Extract<Reach, { presented: unknown }>, isCloud: boolean) {
  const { certificate, distrust } = answer;
  const kind = distrustKind(answer);
  const misled = isCloud ? PORTAL_ADVICE : `${PORTAL_ADVICE}; otherwise `;
  if (!certificate) {
    const port = 'set NGROK_SERVER_ADDR to the port for agents';
    if (kind === 'plain text') return failed(`${where} does not answer with TLS`, isCloud ? misled : misled + port);
    return failed(`${where} breaks off the TLS handshake (${distrust})`, isCloud ? misled : misled + port);
  }
  const { subject, issuer } = certificate;
  const who = `${where} answers as ${subject}, signed by ${issuer}`;
  if (distrust === null) return ok(who);
  if (inTime === true) return ok(`${who}, which is valid at the time that it proves`);
  if (isDateCode(distrust)) {
    const validity = `valid from ${day(certificate.validFrom)} to ${day(certificate.validTo)}`;
    return failed(
      inTime === undefined ? `${who}, ${validity}` : `${who}, ${validity}: ${inTime}`,
      'check the clock first; then renew the gateway’s certificate',
    );
  }
  if (kind === 'unknown CA' && !isCloud) {
    return failed(
      `${who}, a CA that NGROK_CA_CERT does not trust`,
      "set NGROK_CA_CERT to a copy of the gateway's ca.pem; if it is one already, something intercepts TLS",
    );
  }
  const name = 'set NGROK_SERVER_ADDR to a name in this certificate, such as connect.gateway.example.com';
  const both = kind === 'foreign' ? `${name}, and NGROK_CA_CERT to a copy of the gateway's ca.pem` : name;
  return failed(`${who}: this is not the gateway (${distrust})`, isCloud ? misled : misled + both);
}

function unreachable(where: string, error: unknown): Result {
  if (error instanceof ProxyFailure) {
    return failed(error.message, 'check HTTPS_PROXY and ALL_PROXY and what that proxy allows; NO_PROXY bypasses it');
  }
  if (error instanceof Silence) return failed(`${where} ${error.message}`, SILENCE_ADVICE);
  return failed(`${where} is unreachable: ${messageOf(error)}`, adviceFor(error));
}

function adviceFor(error: unknown): string {
  if (hasErrno(error, 'ECONNREFUSED')) {
    return 'connection refused: check that the gateway is running, and NGROK_SERVER_ADDR';
  }
  if (hasErrno(error, 'ENOTFOUND') || hasErrno(error, 'EAI_AGAIN')) return 'see DNS of the gateway';
  return 'check the network and outgoing firewall rules';
}

function day(date: Date): string {
  return date.toISOString().slice(0, 16).replace('T', ' ');
}
