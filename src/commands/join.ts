import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join as joinPath } from 'node:path';
import { callAgent } from '../agent/api-client.ts';
import {
  type EnrolOptions,
  type JoinedDevice,
  type JoinFiles,
  joinSite,
  readInstallation,
  rememberedIn,
  requireCode,
} from '../agent/join/join-site.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { openDataFolder } from '../lib/files/data-folder.ts';
import { rootCommand, shellWord } from '../lib/process/own-command.ts';
import { printable } from '../lib/terminal-text.ts';
import { systemClock } from '../lib/time/clock.ts';
import { deviceName } from '../management/resources/device.ts';
import { type Host, thisHost, thisProgram } from '../service/host.ts';
import { installService } from '../service/install.ts';
import { AGENT_SERVICE, configFolderOf, settingsFileOf, stateFolderOf } from '../service/service.ts';
import { AUTHTOKEN_FILE } from '../settings/agent-settings.ts';
import { loadJoinSettings } from '../settings/first-start-settings.ts';
import { ENROLMENT_FILE } from '../settings/setting-sources.ts';
import { installUpdateUnits } from '../update/units.ts';
import { jsonText, note, print } from './output.ts';
import { requireApiPort, run } from './run.ts';
import { STANDARD_INPUT, secretFromInput } from './secret-input.ts';
import { agentSettings, isServiceMeant } from './settings-place.ts';

export interface JoinOptions {
  name?: string;
  service: boolean;
  json?: boolean;
}

const NO_CODE = 'no code on standard input; give the one that device-agent gateway invite has printed';
/** How long an unreachable gateway is tried again. */
export const REACH_MS = 60_000;
const ONLINE_MS = 60_000;
const POLL_MS = 200;
const NOT_READY = 5;

/**
 * Joins a site, writes the settings and starts the agent: as a service, or in the foreground without root or systemd.
 * Interrupted at any point, it can be repeated; the device stays the same one.
 *
 * @param given the code, or `-` to read it from standard input; null: that of the last time, to take a new name or authtoken
 * @throws {OperatorError} exit code 2 for a damaged or missing code, 3 when the gateway is unreachable, 1 when it refuses
 *   the device, 5 when the agent is not online in time
 */
export async function join(given: string | null, options: JoinOptions): Promise<void> {
  const { service, json } = options;
  const code = given === STANDARD_INPUT ? await secretFromInput('Code', NO_CODE) : given;
  // On Linux, the title takes the place of the arguments, which all users of the machine can read.
  if (code !== null) process.title = 'device-agent join';
  const host = thisHost();
  const isRoot = process.geteuid?.() === 0;
  if (service && !isRoot && isServiceMeant(AGENT_SERVICE)) throw joinsWithService(options.name);
  if (!service || !isRoot || !host.isBooted) return joinHere(code, options);
  const files = serviceFiles(host);
  const device = await joinWith(code, options, files);
  // A running service would keep its old settings.
  if (await isActive(host)) await host.run('systemctl', 'stop', AGENT_SERVICE.name);
  await installService(AGENT_SERVICE, thisProgram(), host, json ? note : print);
  await installUpdateUnits(thisProgram(), host);
  const url = await waitUntilOnline(device);
  if (!json) print(printable(`online: ${url}`));
}

/** systemctl fails for a service that is not active, or unknown. */
async function isActive(host: Host): Promise<boolean> {
  return host.run('systemctl', 'is-active', '--quiet', AGENT_SERVICE.name).then(
    () => true,
    () => false,
  );
}

/** A second device would use up the code, and could not start beside the first one. The code stays out of messages. */
function joinsWithService(name: string | undefined): OperatorError {
  const again = rootCommand(name === undefined ? 'join -' : `join - --name ${shellWord(name)}`);
  return new OperatorError(
    `nothing was sent: the agent of this device is the service ${AGENT_SERVICE.name}, which joins with root privileges: ` +
      `run ${again} and paste the code; for a second device in this folder, add --no-service and set AGENT_PORT`,
  );
}

/** In the current folder; the process becomes the agent. */
async function joinHere(code: string | null, options: JoinOptions): Promise<void> {
  const { service: wantsService, json } = options;
  const say = json ? note : print;
  const settings = loadJoinSettings();
  const { dataDir } = settings;
  const files: JoinFiles = {
    installation: joinPath(dataDir, ENROLMENT_FILE),
    settings: joinPath(process.cwd(), '.env'),
    settingsMode: 0o600,
    // Git ignores the data folder, but not the .env of every project.
    authtoken: joinPath(dataDir, 'authtoken'),
    namesAuthtoken: true,
    ca: joinPath(process.cwd(), 'gateway-ca.pem'),
    dataDir,
  };
  // An agent that runs here already would not notice the new settings.
  const folder = await openDataFolder(dataDir);
  try {
    await requireApiPort(settings);
    await joinWith(code, options, files);
  } finally {
    await folder.release();
  }
  say(`settings written to ${files.settings}`);
  if (wantsService) say('no service: that needs root and systemd; the agent runs in the foreground');
  await run();
}

function serviceFiles({ root }: Host): JoinFiles {
  const folder = root + configFolderOf(AGENT_SERVICE);
  return {
    installation: joinPath(folder, ENROLMENT_FILE),
    settings: root + settingsFileOf(AGENT_SERVICE),
    settingsMode: 0o640,
    authtoken: root + AUTHTOKEN_FILE,
    ca: joinPath(folder, 'gateway-ca.pem'),
    dataDir: root + stateFolderOf(AGENT_SERVICE),
  };
}

async function joinWith(
  given: string | null,
  { name: wanted, json }: JoinOptions,
  files: JoinFiles,
): Promise<JoinedDevice> {
  const before = await rememberedIn(files);
  // Root goes to no gateway that a file names which the agent's user can write.
  const code = given ?? (await readInstallation(files.installation))?.code;
  if (code === undefined) {
    throw new OperatorError(
      'no code: this device has not joined a site yet; run `device-agent gateway invite` on the gateway and give its code',
      2,
    );
  }
  const { origin } = requireCode(code);
  const settings = loadJoinSettings();
  const name = wanted ?? settings.name ?? before?.device?.name ?? hostname();
  const options: EnrolOptions = {
    name,
    proxies: settings.proxies,
    clock: systemClock,
    deadline: systemClock.now() + REACH_MS,
    onWait: tellOnce(),
  };
  const replaced = before?.device ? null : await authtokenIn(files);
  const device = await joinSite(code, files, options);
  if (replaced !== null)
    note(`the authtoken of before is replaced, in ${replaced}; sessions go to the gateway of the code now`);
  if (json) {
    print(jsonText({ ...device, gateway: origin }, 0));
    return device;
  }
  const isOther = wanted !== undefined && device.name !== deviceName(wanted);
  const other = isOther ? ` (${wanted} was taken or not a valid name)` : '';
  print(printable(`joined ${device.site} at ${origin} as ${device.name}${other}`));
  return device;
}

/** The file that has an authtoken, from before the device joins; null when there is none. */
async function authtokenIn({ settings, authtoken }: JoinFiles): Promise<string | null> {
  const contains = async (file: string, pattern: RegExp) => pattern.test(await readFile(file, 'utf8').catch(() => ''));
  if (authtoken !== null && (await contains(authtoken, /\S/))) return authtoken;
  return (await contains(settings, /^\s*(?:export\s+)?NGROK_AUTHTOKEN(?:_FILE)?\s*=\s*\S/m)) ? settings : null;
}

/** Says once why a device has not joined yet. */
export function tellOnce(): EnrolOptions['onWait'] {
  let last = '';
  return ({ reason, isPending, isDistrusted }) => {
    if (reason === last) return;
    last = reason;
    const advice = isPending ? ': run `device-agent gateway devices approve` on the gateway' : '; trying again';
    note(printable(`${isPending || isDistrusted ? '' : 'gateway unreachable: '}${reason}${advice}`));
  };
}

/** Waits until the API of the service answers at its domain, and returns the URL. */
async function waitUntilOnline({ domain }: JoinedDevice): Promise<string> {
  const deadline = systemClock.now() + ONLINE_MS;
  for (;;) {
    const state = await apiState();
    if (state.url !== null) return state.url;
    if (systemClock.now() > deadline) {
      throw new OperatorError(
        `joined, but not online after ${ONLINE_MS / 1000} s: ${state.reason}; ${rootCommand('doctor')} diagnoses it (domain ${domain})`,
        NOT_READY,
      );
    }
    await systemClock.sleep(POLL_MS);
  }
}

async function apiState(): Promise<{ url: string; reason: null } | { url: null; reason: string }> {
  try {
    const { session, remote_api } = await callAgent(agentSettings('api'), 'GET /status', {
      deadlineMs: 5000,
    });
    if (remote_api?.status === 'online') return { url: remote_api.url, reason: null };
    const error = remote_api?.last_error ?? session.last_error;
    return { url: null, reason: error?.message ?? `the session is ${session.state}` };
  } catch (error) {
    return { url: null, reason: messageOf(error) };
  }
}
