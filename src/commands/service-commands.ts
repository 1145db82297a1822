import { join } from 'node:path';
import { type Installation, leaveSite, readInstallation } from '../agent/join/join-site.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { printable } from '../lib/terminal-text.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import { type Host, requireRoot, thisHost, thisProgram } from '../service/host.ts';
import { installService } from '../service/install.ts';
import {
  AGENT_SERVICE,
  configFolderOf,
  GATEWAY_SERVICE,
  type Service,
  serviceEnvironment,
  stateFolderOf,
} from '../service/service.ts';
import { type ServiceState, serviceState } from '../service/service-state.ts';
import { uninstallService } from '../service/uninstall.ts';
import { loadJoinSettings } from '../settings/first-start-settings.ts';
import { ENROLMENT_FILE } from '../settings/setting-sources.ts';
import { installUpdateUnits, removeCrashDropIn, removeUpdateUnits, servicesOf } from '../update/units.ts';
import { jsonText, print, show } from './output.ts';

interface ServiceOptions {
  gateway?: boolean;
  purge?: boolean;
  yes?: boolean;
  json?: boolean;
}

/** The same as systemctl's; 3 for all other states. */
const EXIT_CODES: Partial<Record<ServiceState['state'], number>> = { running: 0, 'not installed': 4 };

const chosen = ({ gateway }: ServiceOptions): Service => (gateway ? GATEWAY_SERVICE : AGENT_SERVICE);

export async function install(options: ServiceOptions): Promise<void> {
  requireRoot();
  await reporting(options, async (tell) => {
    await installService(chosen(options), thisProgram(), thisHost(), tell);
    await installUpdateUnits(thisProgram(), thisHost());
  });
}

export async function uninstall(options: ServiceOptions): Promise<void> {
  requireRoot();
  if (options.purge && !options.yes) await confirmPurge(chosen(options));
  await reporting(options, async (tell) => {
    if (options.purge && !options.gateway) await leaveWithService(thisHost(), tell);
    // First: an update under way would start the agent again.
    const [own, other] = options.gateway ? [GATEWAY_SERVICE, AGENT_SERVICE] : [AGENT_SERVICE, GATEWAY_SERVICE];
    const isOtherHere = servicesOf(thisProgram(), thisHost()).includes(other);
    if (isOtherHere) await removeCrashDropIn(own, thisHost());
    else await removeUpdateUnits(thisProgram(), options.purge === true, thisHost());
    await uninstallService(chosen(options), options.purge === true, thisHost(), tell);
  });
}

/** Prints the lines that work tells, or all of them as JSON at its end. */
async function reporting(
  options: ServiceOptions,
  work: (tell: (line: string) => void) => Promise<void>,
): Promise<void> {
  const report: string[] = [];
  await work(options.json ? (line) => void report.push(line) : print);
  if (options.json) print(jsonText({ service: chosen(options).name, report }));
}

/** @throws {OperatorError} exit code 2 without a terminal, 1 when the answer is not yes */
async function confirmPurge(service: Service): Promise<void> {
  const { irreplaceable } = service;
  if (irreplaceable === null) return;
  const folder = stateFolderOf(service);
  const loss = `--purge deletes ${irreplaceable} (${folder})`;
  if (!process.stdin.isTTY) throw new OperatorError(`${loss}: back them up, then add --yes`, 2);
  const { createInterface } = await import('node:readline/promises');
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await terminal.question(`${loss}. Devices must then be set up again.\nType "yes" to delete them: `);
  terminal.close();
  if (answer.trim() !== 'yes') throw new OperatorError('nothing was changed');
}

/** Prints the state and sets the exit code. */
export async function serviceStatus(options: ServiceOptions): Promise<void> {
  const { state, lines } = await serviceState(chosen(options), thisProgram(), thisHost());
  show({ state, lines }, options, (shown) => shown.lines.join('\n'));
  process.exitCode = EXIT_CODES[state] ?? 3;
}

/** An unreachable gateway must not keep anybody from removing the service. */
const DEADLINE_MS = 10_000;

/**
 * Ends the enrolment of the service's device, if it has joined a site. Never fails.
 *
 * @param tell prints what happened, and what is left to do when the gateway is unreachable
 */
async function leaveWithService(host: Host, tell: (line: string) => void): Promise<void> {
  const folders = [configFolderOf, stateFolderOf].map((folderOf) => host.root + folderOf(AGENT_SERVICE));
  for (const folder of folders) {
    const installation = await readInstallation(join(folder, ENROLMENT_FILE)).catch(() => null);
    const files = { ca: join(folder, 'gateway-ca.pem'), dataDir: host.root + stateFolderOf(AGENT_SERVICE) };
    if (installation?.device) await leave({ installation, files }, installation.device, host, tell);
  }
}

async function leave(
  { installation, files }: { installation: Installation; files: Parameters<typeof leaveSite>[2] },
  { name, site }: NonNullable<Installation['device']>,
  host: Host,
  tell: (line: string) => void,
): Promise<void> {
  try {
    const { proxies } = loadJoinSettings(serviceEnvironment(AGENT_SERVICE, host));
    await withDeadline(leaveSite(installation, proxies, files), 'leaving the site', DEADLINE_MS);
    tell(printable(`${name} has left ${site}`));
  } catch (error) {
    const todo = `run there: device-agent gateway devices delete ${name}`;
    tell(printable(`the gateway still lists ${name}: ${messageOf(error)}; ${todo}`));
  }
}
