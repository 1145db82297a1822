import { execFile } from 'node:child_process';
import { apiHost } from '../../gateway/endpoints/domain-names.ts';
import { messageOf } from '../../lib/errors.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { failed, ok, type Result, skipped } from '../finding.ts';
import { needsDns } from './gateway-records.ts';

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
  settings: Pick<GatewayServerSettings, 'domain' | 'httpsPort' | 'httpPort' | 'tcpPorts'>,
  from: string | null,
  ask: AskHost = askBySsh,
): Promise<Result[]> {
  const { domain, httpsPort, httpPort, tcpPorts } = settings;
  if (!needsDns(domain)) return [skipped(`${domain} is for this machine only`)];
  if (from === null) {
    return [skipped('cannot be known from this machine; --from user@host asks another one over SSH')];
  }
  const urls = [`https://${apiHost(domain)}:${httpsPort}/`, `http://${apiHost(domain)}:${httpPort}/`];
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
  const range = tcpPorts && `${tcpPorts.first}-${tcpPorts.last}`;
  // Nothing listens on them as long as no endpoint does.
  return range
    ? [...results, skipped(`tcp ports ${range}: open them in the firewall; tested only by an endpoint`)]
    : results;
}

function judge(url: string, from: string, code: number): Result {
  if (code === 0) return ok(`${from} reaches ${url}`);
  const reason = REASONS[code] ?? `curl ends with ${code}`;
  const advice = ADVICE[code] ?? 'open the port in the firewall, and forward it to this server';
  return failed(`${from} does not reach ${url}: ${reason}`, advice);
}
