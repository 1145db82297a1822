import { execFile } from 'node:child_process';
import { rootCertificates } from 'node:tls';
import { connectHost, publicApiHost } from '../../gateway/endpoints/domain-names.ts';
import { hasErrno, messageOf } from '../../lib/errors.ts';
import { type Cidr, hostPort, isUnspecified } from '../../lib/network/ip-address.ts';
import { connectHere } from '../../lib/network/load-balancers.ts';
import { probeTls, type TlsAnswer } from '../../lib/tls/tls-probe.ts';
import { type GatewayServerSettings, gatewayListeners } from '../../settings/gateway-settings.ts';
import { failed, ok, type Result, skipped } from '../finding.ts';
import { freePorts, type Port } from '../ports.ts';
import { needsDns } from './gateway-records.ts';

const REACH_MS = 4000;

/** The ports that a gateway listens on all the time. */
export function gatewayPorts(settings: GatewayServerSettings): Port[] {
  const { challengeDns } = settings;
  return [
    ...gatewayListeners(settings),
    ...(challengeDns === null
      ? []
      : [
          {
            what: 'the DNS server',
            setting: 'GATEWAY_DNS_PORT',
            hostSetting: 'GATEWAY_DNS_HOST',
            host: challengeDns.host,
            port: challengeDns.port,
          },
        ]),
  ];
}

/** How to reach a gateway and recognise it. */
export interface Recognition {
  domain: string;
  httpsPort: number;
  /** PEM of the gateway's own CA; null: it has none yet. */
  caPem: string | null;
  /** Load balancers in front of it, one of which may be on this machine. */
  balancers: readonly Cidr[];
}

/**
 * Connects as an agent would.
 *
 * @returns why the address does not lead to this gateway; null when it does
 */
export async function whyNotThere(
  address: string,
  { domain, httpsPort, caPem, balancers }: Recognition,
  ms: number,
): Promise<string | null> {
  const signal = AbortSignal.timeout(ms);
  const name = connectHost(domain);
  const socket = connectHere({ host: address, port: httpsPort }, balancers);
  try {
    // With GATEWAY_ACME_OWN_NAMES=all, a public CA signs this name's certificate.
    const ca = [caPem ?? '', ...rootCertificates].join('\n');
    const answer = await probeTls(socket, { host: name, serverName: name }, { ca, signal });
    return distrust(answer, name);
  } catch (error) {
    if (hasErrno(error, 'ECONNREFUSED')) return 'connection refused';
    return signal.aborted ? `no answer within ${Math.round(ms / 1000)} s` : messageOf(error);
  } finally {
    socket.destroy();
  }
}

function distrust({ certificate, distrust: code }: TlsAnswer, name: string): string | null {
  if (certificate === null) return 'another program answers, without TLS';
  if (code === null) return null;
  return `another server answers: its certificate for ${name} is of ${certificate.issuer} (${code})`;
}

/** Whether the gateway with these settings runs on this machine. */
export async function isRunning(
  { host }: Pick<GatewayServerSettings, 'host'>,
  gateway: Recognition,
  patience: number,
): Promise<boolean> {
  if (gateway.httpsPort === 0) return false;
  const local = isUnspecified(host) ? '127.0.0.1' : host;
  return (await whyNotThere(local, gateway, REACH_MS * patience)) === null;
}

/** Judges the gateway's ports on this machine. */
export async function portResults(settings: GatewayServerSettings, runs: boolean): Promise<Result[]> {
  if (!runs) return freePorts(gatewayPorts(settings));
  const { host, httpsPort, httpPort } = settings;
  return [ok(`the gateway runs and answers at ${hostPort(host, httpsPort)}; http: ${httpPort}`)];
}

/** Judges whether the addresses in DNS lead here, as seen from this machine. */
export async function addressResults(
  addresses: readonly string[],
  runs: boolean,
  gateway: Recognition,
  patience: number,
): Promise<Result[]> {
  if (addresses.length === 0) return [skipped('no address in DNS')];
  if (!runs) return [skipped('the gateway is not running')];
  return Promise.all(
    addresses.map(async (address) => {
      const where = hostPort(address, gateway.httpsPort);
      const why = (balancers: readonly Cidr[]) => whyNotThere(address, { ...gateway, balancers }, REACH_MS * patience);
      let reason = await why(gateway.balancers);
      // It may lead to the load balancer, which expects no header.
      if (reason !== null && gateway.balancers.length > 0) reason = await why([]);
      if (reason === null) return ok(`${where} leads to this gateway`);
      return failed(
        `${where} does not lead to this gateway: ${reason}`,
        'correct the DNS record, or forward the port; routers may not allow this connection from inside: try --from',
      );
    }),
  );
}

/** Below the deadline of a check. */
const DEADLINE_MS = 9000;
const CURL_SECONDS = 4;

/** Runs a command on another host and returns what it printed. */
export type AskHost = (host: string, command: string) => Promise<string>;

/** Asks over SSH, without prompts: with the keys and settings of the user. */
export const askBySsh: AskHost = (host, command) => {
  const args = ['-o', 'BatchMode=yes', '-o', 'ConnectTimeout=4', '--', host, command];
  return new Promise((resolve, reject) => {
    execFile('ssh', args, { timeout: DEADLINE_MS }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(stderr.trim().split('\n').at(-1) || messageOf(error)));
    });
  });
};

/** Exit codes of curl. */
const REASONS: Readonly<Record<number, string>> = {
  6: 'the name does not resolve',
  7: 'connection refused or not routed',
  28: `no answer within ${CURL_SECONDS} s`,
  127: 'that host has no curl',
};
const ADVICE: Readonly<Record<number, string>> = {
  6: 'add the DNS records; DNS changes take time: run this again later',
  127: 'install curl there',
};

/**
 * Judges whether the public ports are reachable from another host.
 *
 * @param from destination for ssh; null: nobody to ask
 */
export async function outsideResults(
  settings: Pick<GatewayServerSettings, 'domain' | 'ip' | 'httpsPort' | 'httpPort' | 'tcpPorts' | 'httpsPorts'>,
  from: string | null,
  ask: AskHost = askBySsh,
): Promise<Result[]> {
  const { domain, ip, httpsPort, httpPort, tcpPorts, httpsPorts } = settings;
  if (!needsDns(domain) && ip === null) return [skipped(`${domain} is for this machine only`)];
  if (from === null) {
    return [skipped('cannot be known from this machine; --from user@host asks another one over SSH')];
  }
  const host = publicApiHost({ baseDomain: domain, ip });
  const urls = [`https://${host}:${httpsPort}/`, `http://${host}:${httpPort}/`];
  // Whether another server answers there is the subject of another check.
  const calls = urls.map((url) => `curl -sk -o /dev/null --max-time ${CURL_SECONDS} ${url} & first=$!`);
  const command = `${calls[0]}; ${calls[1]?.replace('first', 'second')}; wait $first; echo $?; wait $second; echo $?`;
  let codes: number[];
  try {
    codes = (await ask(from, command)).trim().split(/\s+/).map(Number);
  } catch (error) {
    return [failed(`cannot ask ${from}: ${messageOf(error)}`, `make "ssh ${from} true" work without a password`)];
  }
  const results = urls.map((url, at) => judge(url, from, codes[at] ?? Number.NaN));
  const ranges = [
    ...(tcpPorts ? [`tcp ports ${tcpPorts.first}-${tcpPorts.last}`] : []),
    ...(ip !== null && httpsPorts ? [`https ports ${httpsPorts.first}-${httpsPorts.last}`] : []),
  ];
  // Nothing listens on them as long as no endpoint does.
  return [
    ...results,
    ...ranges.map((range) => skipped(`${range}: open them in the firewall; tested only by an endpoint`)),
  ];
}

function judge(url: string, from: string, code: number): Result {
  if (code === 0) return ok(`${from} reaches ${url}`);
  const reason = REASONS[code] ?? `curl ends with ${code}`;
  const advice = ADVICE[code] ?? 'open the port in the firewall, and forward it to this server';
  return failed(`${from} does not reach ${url}: ${reason}`, advice);
}
