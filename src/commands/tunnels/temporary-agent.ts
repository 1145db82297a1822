import { once } from 'node:events';
import { existsSync, rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { createServer } from 'node:net';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Agent, startAgent } from '../../agent/agent.ts';
import { type CreatedTunnel, callAgent } from '../../agent/api-client.ts';
import { joinSite, leaveSite, readInstallation } from '../../agent/join/join-site.ts';
import { because, sessionAdvice } from '../../doctor/advice.ts';
import { EXIT_UNREACHABLE, messageOf, OperatorError } from '../../lib/errors.ts';
import { isDataFolderHeld } from '../../lib/files/data-folder.ts';
import { runtimePath } from '../../lib/files/runtime-folder.ts';
import { createLog } from '../../lib/log/log.ts';
import { LogTail } from '../../lib/log/log-tail.ts';
import { isLoopbackHost, isUnspecified } from '../../lib/network/ip-address.ts';
import { printable } from '../../lib/terminal-text.ts';
import { systemClock } from '../../lib/time/clock.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import { AGENT_SERVICE } from '../../service/service.ts';
import { loadSettings, type Settings } from '../../settings/agent-settings.ts';
import { loadFirstStart, loadJoinSettings } from '../../settings/first-start-settings.ts';
import { logSettingSources } from '../../settings/parse-settings.ts';
import { ENROLMENT_FILE, JOINED_SETTINGS, type Texts, textsOfFiles } from '../../settings/setting-sources.ts';
import { VARIABLES } from '../../settings/variables.ts';
import { REACH_MS, tellOnce } from '../join.ts';
import { jsonText, note, print, printed } from '../output.ts';
import { silenceNativeOutput } from '../run.ts';
import { STANDARD_INPUT, secretFromInput } from '../secret-input.ts';
import { agentSettings, isServiceMeant } from '../settings-place.ts';
import { endOnUnexpectedError, stopSignal } from '../until-stopped.ts';
import { LiveRequests } from '../watch/live-requests.ts';
import { createTunnel, noteOn, requestFor, type StartOptions, startTunnel, urlText } from './tunnels.ts';

/** Where an agent of this command's own connects to. */
interface GatewayOptions {
  /** `host:port`. */
  gateway?: string;
  gatewayCa?: string;
  token?: string;
  join?: string;
}

const PROBE_MS = 5_000;
/** How long the end waits for the agent, and for the gateway. */
const STOP_MS = 4_500;
const POLL_MS = 20;

/**
 * Starts a tunnel: at the agent of this device, else at one that runs as long as this command and leaves nothing.
 *
 * @throws {OperatorError} exit code 2 for wrong options or settings, 3 when the gateway is unreachable, 1 when gateway or
 *   agent refuses
 */
export async function openTunnel(forwardsTo: string, options: StartOptions & GatewayOptions): Promise<void> {
  const { gateway, gatewayCa, token, join: code } = options;
  // On Linux, the title takes the place of the arguments, which all users of the machine can read.
  if (token !== undefined || code !== undefined) process.title = `device-agent ${options.protocol}`;
  if (code !== undefined && [gateway, gatewayCa, token].some((each) => each !== undefined)) {
    throw new OperatorError('--join has gateway and authtoken: leave out --gateway, --gateway-ca and --token', 2);
  }
  const namesGateway = [gateway, gatewayCa, token, code].some((each) => each !== undefined);
  if (!namesGateway && (await isAgentHere(agentSettings('api')))) return startTunnel(forwardsTo, options);
  await runTemporarily(forwardsTo, {
    ...options,
    ...(token === STANDARD_INPUT && { token: await secretFromInput('Authtoken', 'no authtoken on standard input') }),
    ...(code === STANDARD_INPUT && { join: await secretFromInput('Code', 'no code on standard input') }),
  });
  // The SDK's threads may outlive its sessions.
  process.exit(0);
}

/** Whether the device has an agent to use: it answers, or is only stopped or starting. */
async function isAgentHere(settings: Settings): Promise<boolean> {
  const { api, dataDir } = settings;
  try {
    if (api.port !== 0) {
      await callAgent(settings, 'GET /healthz', { deadlineMs: PROBE_MS });
      return true;
    }
  } catch (error) {
    if (!(error instanceof OperatorError) || error.exitCode !== EXIT_UNREACHABLE) throw error;
  }
  if (!isLoopbackHost(api.host) && !isUnspecified(api.host)) return true;
  if (isServiceMeant(AGENT_SERVICE)) return true;
  // A folder that this user may not read has an agent of another user.
  return isDataFolderHeld(dataDir).catch(() => true);
}

async function runTemporarily(forwardsTo: string, options: StartOptions & GatewayOptions): Promise<void> {
  const request = await requestFor(forwardsTo, options);
  const stopped = stopSignal();
  const folder = await mkdtemp(join(tmpdir(), 'device-agent-'));
  process.on('exit', () => {
    for (const path of [folder, runtimePath(folder)]) rmSync(path, { recursive: true, force: true });
  });
  let agent: Agent | null = null;
  try {
    const joined = await joinTemporarily(folder, options, stopped);
    if (stopped.aborted) return;
    const settings = await temporarySettings(folder, forwardsTo, options, joined);
    const logTail = new LogTail();
    const standardError = { write: (line: string) => note(line.trimEnd()) };
    const log = await createLog(settings.log.level, settings.log.format, standardError, logTail);
    logSettingSources(log, note);
    endOnUnexpectedError(log);
    if (settings.connector === 'sdk') silenceNativeOutput();
    agent = await startAgent(settings, log, systemClock, { logTail, diagnose: null });
    await agent.started;
    await sessionOnline(agent, stopped);
    if (!stopped.aborted) await serve(agent, settings, request, options, stopped);
  } finally {
    await withDeadline(Promise.resolve(agent?.stop()), 'stopping', STOP_MS).catch((error: unknown) =>
      note(messageOf(error)),
    );
    await leave(folder);
    await printed();
  }
}

/** Opens the tunnel, and shows what happens at it until the command is stopped. */
async function serve(
  agent: Agent,
  { gateway, ...settings }: Settings,
  request: Parameters<typeof createTunnel>[1],
  { json, protocol }: StartOptions,
  stopped: AbortSignal,
): Promise<void> {
  const { api = null, gateway_ca: ca = null } = agent.addresses();
  const here: Settings = { ...settings, gateway, api: { ...settings.api, port: Number(new URL(api ?? '').port) } };
  const tunnel = await createTunnel(here, request);
  const tell = () => {
    print(json ? jsonText(tunnel, 0) : printable(urlText(tunnel)));
    noteOn(tunnel);
    for (const line of remarks(tunnel, gateway.kind === 'embedded' ? ca : null, api)) note(printable(line));
  };
  if (protocol !== 'http' || request.app_protocol === 'http2') {
    tell();
    if (!stopped.aborted) await once(stopped, 'abort');
    return;
  }
  const watched = { settings: here, url: tunnel.url, query: {} };
  await new LiveRequests(watched, { json: json === true }, stopped, tell).run();
}

function remarks({ protocol, url }: CreatedTunnel, ca: string | null, api: string | null): string[] {
  const trial =
    'only this machine reaches it; to go public: set NGROK_AUTHTOKEN for ngrok’s network, or give --gateway and --token, or --join, for your own gateway';
  const curl = protocol === 'http' ? [`test it with: curl --cacert ${ca} ${url}`] : [];
  return [...(ca === null ? [] : [trial, ...curl]), `the agent’s page: ${api}/; Ctrl-C ends agent and tunnel`];
}

/** Waits for the first session: later ones are the agent's own business. */
async function sessionOnline(agent: Agent, stopped: AbortSignal): Promise<void> {
  for (const deadline = systemClock.now() + REACH_MS; !stopped.aborted; await delay(POLL_MS)) {
    const { state, gateway, lastError } = agent.status().session;
    if (state === 'online') return;
    if (lastError?.code) {
      const advice = sessionAdvice(lastError);
      throw new OperatorError(`no session with ${gateway}${because(lastError)}${advice === null ? '' : `; ${advice}`}`);
    }
    if (systemClock.now() < deadline) continue;
    throw new OperatorError(`cannot reach ${gateway}${because(lastError ?? null)}`, EXIT_UNREACHABLE);
  }
}

/** @returns the settings of a device that has joined with the given code; null without a code, or when it was stopped */
async function joinTemporarily(
  folder: string,
  { join: given, ...options }: GatewayOptions,
  stopped: AbortSignal,
): Promise<Texts | null> {
  const first = Object.values(options).some((each) => each !== undefined) ? null : loadFirstStart();
  const isJoined = first !== null && existsSync(join(first.dataDir, JOINED_SETTINGS));
  const code = given ?? (isJoined ? null : first?.code) ?? null;
  if (code === null) return null;
  const { name, proxies } = loadJoinSettings();
  const file = join(folder, JOINED_SETTINGS);
  const installation = join(folder, ENROLMENT_FILE);
  const joining = joinSite(
    code,
    {
      installation,
      settings: file,
      settingsMode: 0o600,
      authtoken: null,
      ca: join(folder, 'gateway-ca.pem'),
      dataDir: folder,
    },
    {
      name: name ?? hostname(),
      proxies,
      clock: systemClock,
      deadline: systemClock.now() + REACH_MS,
      onWait: tellOnce(),
    },
  );
  // The gateway has no device to forget.
  joining.catch(() => rmSync(installation, { force: true }));
  await Promise.race([joining, once(stopped, 'abort')]);
  return stopped.aborted ? null : textsOfFiles({ SETTINGS_FILE: file }, folder);
}

/** Has the gateway forget the device that has joined for this command. */
async function leave(folder: string): Promise<void> {
  const installation = await readInstallation(join(folder, ENROLMENT_FILE));
  if (installation === null) return;
  const left = leaveSite(installation, loadJoinSettings().proxies, {
    ca: join(folder, 'gateway-ca.pem'),
    dataDir: folder,
  });
  await withDeadline(left, 'leaving the site', STOP_MS).catch((error: unknown) => {
    const name = installation.device?.name ?? 'this device';
    note(printable(`the gateway still lists ${name}: ${messageOf(error)}; delete it there`));
  });
}

const OF_GATEWAY = [
  ...['AGENT_GATEWAY', 'NGROK_AUTHTOKEN', 'NGROK_AUTHTOKEN_FILE', 'NGROK_SERVER_ADDR', 'NGROK_CA_CERT'],
  'AGENT_TIME_CA',
];
const OF_SITE = ['AGENT_SITE', 'AGENT_NAME'];
/** What only makes sense for an agent that stays. */
const OF_STAYING = ['AGENT_DOMAIN', 'AGENT_TUNNELS_DIR', 'AGENT_API_TOKEN', 'AGENT_API_TOKEN_FILE'];

/** The settings of this folder, with another gateway where the command line names one. */
async function temporarySettings(
  folder: string,
  forwardsTo: string,
  { gateway, gatewayCa, token }: GatewayOptions,
  joined: Texts | null,
): Promise<Settings> {
  const httpsPort = await portOrAny(VARIABLES.GATEWAY_HTTPS_PORT.default ?? '', forwardsTo);
  const change = (texts: Texts): Texts => ({
    // Somebody may want a well-known port for a program that starts later.
    GATEWAY_HTTP_PORT: '0',
    GATEWAY_HTTPS_PORT: httpsPort,
    AGENT_PORT: '0',
    LOG_LEVEL: 'warn',
    LOG_FORMAT: 'pretty',
    ...without(texts, [
      ...OF_STAYING,
      ...(joined === null ? [] : [...OF_GATEWAY, ...OF_SITE]),
      ...(gateway === undefined && token === undefined ? [] : ['AGENT_GATEWAY']),
      ...(token === undefined ? [] : ['NGROK_AUTHTOKEN', 'NGROK_AUTHTOKEN_FILE']),
      ...(gateway === undefined ? [] : [...OF_SITE, 'AGENT_TIME_CA']),
    ]),
    ...without(joined ?? {}, OF_STAYING),
    ...(token !== undefined && { NGROK_AUTHTOKEN: token }),
    ...(gateway !== undefined && { NGROK_SERVER_ADDR: gateway }),
    ...((gatewayCa ?? (gateway !== undefined && !('NGROK_CA_CERT' in texts))) && {
      NGROK_CA_CERT: gatewayCa ?? 'host',
    }),
    AGENT_HOST: '127.0.0.1',
    DATA_DIR: folder,
  });
  // As if they were set: the .env of a project must not choose where the authtoken of the command line goes.
  const address = gateway ?? joined?.NGROK_SERVER_ADDR;
  const env = {
    ...process.env,
    ...(address !== undefined && { NGROK_SERVER_ADDR: address }),
    ...(token !== undefined && { NGROK_AUTHTOKEN: token }),
  };
  const settings = loadSettings(env, process.cwd(), change);
  const isOwn = joined !== null || [gateway, gatewayCa, token].some((each) => each !== undefined);
  const own = isOwn || settings.gateway.kind === 'embedded' ? settings : loadSettings();
  // The gateway settings of a device that has joined include its renewed authtoken.
  return { ...settings, gateway: own.gateway, api: { ...settings.api, domain: null } };
}

function without(texts: Texts, names: readonly string[]): Texts {
  return Object.fromEntries(Object.entries(texts).filter(([name]) => !names.includes(name)));
}

/** The port, or 0 when it is taken or wanted for the upstream. */
async function portOrAny(port: string, forwardsTo: string): Promise<string> {
  if (new RegExp(`(?:^|:)${port}$`).test(forwardsTo)) return '0';
  const server = createServer();
  try {
    server.listen(Number(port), '127.0.0.1');
    await once(server, 'listening');
    return port;
  } catch {
    return '0';
  } finally {
    server.close();
  }
}
