import { type Command, InvalidArgumentError, Option } from 'commander';
import { tcpHost } from '../gateway/endpoints/domain-names.ts';
import { EXIT_UNREACHABLE, messageOf, OperatorError } from '../lib/errors.ts';
import { describePortRange, type PortRange } from '../lib/network/port-range.ts';
import { printableMembers } from '../lib/terminal-text.ts';
import type { ManagementClient } from '../management/client.ts';
import { ManagementError } from '../management/management-error.ts';
import { CLOUD_API, isUntrusted } from '../management/transport.ts';
import type { ManagementSettings } from '../settings/management-settings.ts';
import { VARIABLES } from '../settings/variables.ts';
import { examples, parsedOption } from './command-line.ts';
import { jsonText, note, print } from './output.ts';
import { type AgentGateway, describeProgress, describeResult, describeWait, envLines } from './setup-report.ts';

interface SetupOptions {
  domain: string;
  bot: string;
  wait: boolean;
  rotate?: boolean;
  json?: boolean;
  keyType: 'rsa' | 'ecdsa';
  dnsServer?: string[];
  timeout: number;
  serverAddr?: string;
  caCert?: string;
  tcp?: PortRange;
}

/** Where the command prints its result; with `--json`, progress is noted. */
export interface SetupOutput {
  print(text: string): unknown;
  note(text: string): unknown;
}

/**
 * Adds the command `device-agent setup`. Exit codes: 0 success, 1 refused, 2 wrong usage or settings, 3 API unreachable,
 * 5 DNS or the certificate is not ready in time.
 */
export function addSetupCommand(
  program: Command,
  settings: () => ManagementSettings,
  output: SetupOutput = { print, note },
): void {
  examples(program.command('setup'), "setup --domain '*.sitea.example.com' --bot sitea")
    .description('Set up a site: a wildcard domain with certificates, a bot user, and an authtoken for its devices')
    .requiredOption('-d, --domain <hostname>', "The site's domain, such as '*.site-a.example.com'")
    .requiredOption('-b, --bot <name>', 'Name of the bot user that owns the authtoken')
    .option('--no-wait', 'Do not wait for DNS records and the certificate')
    .option('--timeout <minutes>', 'How long to wait for DNS records and the certificate', minutes, 30)
    .option('--rotate', 'Replace the authtoken of an earlier run; devices that use it go offline')
    .option(
      '--dns-server <address...>',
      'Resolvers that check the DNS records (default: those of the system)',
      (text: string, before: string[] = []) => [...before, ...parsedOption(VARIABLES.GATEWAY_DNS_RESOLVERS, text)],
    )
    .addOption(
      new Option('--key-type <type>', "Type of the certificate's key").choices(['rsa', 'ecdsa']).default('rsa'),
    )
    .option(
      '--server-addr <host:port>',
      "Address that agents connect to (default: the API's host and port with connect. instead of api.)",
      (text) => parsedOption(VARIABLES.NGROK_SERVER_ADDR, text),
    )
    .option(
      '--ca-cert <path>',
      "Path of the gateway's CA certificate on the device (default: a copy of MANAGEMENT_API_CA_CERT)",
    )
    .option('--tcp <ports>', 'Ports for tcp tunnels of the site, such as 20000-20099; your own gateway only', ports)
    .option('--json', 'Print the result as JSON, and progress to standard error')
    .action((options: SetupOptions) => runSetup(options, settings(), output));
}

function ports(text: string): PortRange {
  const range = parsedOption(VARIABLES.GATEWAY_TCP_PORTS, text);
  if (range === null) throw new InvalidArgumentError('Give a port or a range such as 20000-20099.');
  return range;
}

function minutes(text: string): number {
  const value = Number(text);
  if (!(value > 0 && value <= 24 * 60)) throw new InvalidArgumentError('Must be a number of minutes, at most 1440.');
  return value;
}

async function runSetup(options: SetupOptions, settings: ManagementSettings, output: SetupOutput): Promise<void> {
  const { provision } = await import('../management/provision.ts');
  const progress = options.json ? output.note : output.print;
  const plan = {
    domain: options.domain,
    bot: options.bot,
    wait: options.wait,
    rotate: options.rotate === true,
    privateKeyType: options.keyType,
  };
  const client = await managementClient(settings);
  const gateway = gatewayOf(options, settings);
  const tcp = options.tcp && tcpAddresses(options.tcp, gateway);
  const result = await provision(
    client,
    { ...plan, tcp },
    {
      waitMs: options.timeout * 60_000,
      ...(options.dnsServer && { dnsServers: options.dnsServer }),
      onProgress: (event) => {
        progress(describeProgress(printableMembers(event)));
        if (event.step === 'records' && options.wait) progress(describeWait(options.timeout));
      },
    },
  ).catch((error: unknown) => {
    throw error instanceof ManagementError ? explained(error) : error;
  });
  const env = envLines(result, gateway);
  const text = options.json
    ? jsonText({ ...result, env })
    : describeResult(printableMembers(result), printableMembers(env));
  output.print(text);
}

/**
 * The gateway that the site's devices connect to. Without an address, they would connect to ngrok's cloud.
 *
 * @throws {OperatorError} exit code 2 when the address is unknown
 */
export function gatewayOf(
  options: Pick<SetupOptions, 'serverAddr' | 'caCert'>,
  settings: Pick<ManagementSettings, 'apiUrl' | 'apiCaFile' | 'serverAddr' | 'caCert'>,
): AgentGateway | null {
  const { apiUrl, apiCaFile } = settings;
  if (apiUrl?.startsWith(CLOUD_API)) return null;
  const serverAddr = options.serverAddr ?? settings.serverAddr ?? sessionAddressOf(apiUrl ?? '');
  if (serverAddr === null) {
    throw new OperatorError(
      `cannot derive the address that agents connect to from MANAGEMENT_API_URL=${apiUrl}: add --server-addr, ` +
        "for example connect.gateway.example.com:443; the gateway logs it as 'agents'",
      2,
    );
  }
  return { serverAddr, caCert: options.caCert ?? settings.caCert, apiCaFile };
}

/** `api.<domain>` and `connect.<domain>` share the gateway's HTTPS port; null for another URL. */
function sessionAddressOf(apiUrl: string): string | null {
  const { protocol, hostname, port } = new URL(apiUrl);
  if (protocol !== 'https:' || !hostname.startsWith('api.')) return null;
  return `connect.${hostname.slice('api.'.length)}:${port || 443}`;
}

/**
 * The addresses of these ports at the gateway.
 *
 * @throws {OperatorError} exit code 2 for ngrok's cloud, or when the gateway's domain is unknown
 */
export function tcpAddresses(range: PortRange, gateway: AgentGateway | null): string {
  if (gateway === null) {
    throw new OperatorError("--tcp is for gateways of your own: reserve TCP addresses in ngrok's dashboard", 2);
  }
  const domain = /^connect\.(.+):\d+$/.exec(gateway.serverAddr)?.[1];
  if (domain === undefined) {
    throw new OperatorError(
      `--tcp: cannot derive the gateway's domain from ${gateway.serverAddr}; add --server-addr with a name such as ` +
        'connect.gateway.example.com:443',
      2,
    );
  }
  return `${tcpHost(domain)}:${describePortRange(range)}`;
}

async function managementClient({ apiUrl, apiKey, apiCa, proxies }: ManagementSettings): Promise<ManagementClient> {
  const { ManagementClient } = await import('../management/client.ts');
  if (apiUrl === null) {
    throw new OperatorError(
      `MANAGEMENT_API_URL is not set: set it to your gateway's management API, or to ${CLOUD_API} for ngrok's cloud`,
      2,
    );
  }
  if (apiKey === null) {
    throw new OperatorError(
      `MANAGEMENT_API_KEY is not set: create a key on the gateway with "device-agent gateway api-key create", or in ngrok's dashboard`,
      2,
    );
  }
  try {
    const { fetchTrusting } = await import('../management/fetch-trusting.ts');
    return new ManagementClient({
      baseUrl: apiUrl,
      apiKey,
      fetch: fetchTrusting({ proxies, ...(apiCa !== null && { ca: apiCa }) }),
    });
  } catch (error) {
    throw new OperatorError(`cannot use MANAGEMENT_API_URL or MANAGEMENT_API_KEY: ${messageOf(error)}`, 2);
  }
}

const UNTRUSTED_HINT =
  "; set MANAGEMENT_API_CA_CERT to a copy of the gateway's current ca.pem, " +
  'or remove it if a public CA signed the certificate';

function hintFor(error: ManagementError): string {
  if (error.isUnauthorized) return '; check MANAGEMENT_API_KEY';
  if (error.cause !== undefined && isUntrusted(error.cause)) return UNTRUSTED_HINT;
  if (error.status === null) return '; check MANAGEMENT_API_URL and the proxy settings';
  return error.status === 404 ? '; check that MANAGEMENT_API_URL is the management API' : '';
}

/** Adds advice for the operator to the error of a failed call. */
function explained(error: ManagementError): OperatorError {
  const exitCode = error.status === null ? EXIT_UNREACHABLE : error.isUnauthorized ? 2 : 1;
  // OpenSSL's messages end with a line break.
  return new OperatorError(`${error.message.trim()}${hintFor(error)}`, exitCode, { cause: error });
}
