import { closeSync, existsSync, openSync } from 'node:fs';
import { isatty } from 'node:tty';
import { type Agent, type AgentStatus, startAgent } from '../agent/agent.ts';
import type { Finding } from '../doctor/finding.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { createLog, type Log, logsTo } from '../lib/log/log.ts';
import { LogTail } from '../lib/log/log-tail.ts';
import { ownCommand } from '../lib/process/own-command.ts';
import { systemClock } from '../lib/time/clock.ts';
import { AGENT_SERVICE } from '../service/service.ts';
import type { ServiceReport, SupervisedProgram } from '../service/service-report.ts';
import { type Settings, SettingsSource } from '../settings/agent-settings.ts';
import { BOOT_FILE, type FirstStartSettings, loadFirstStart } from '../settings/first-start-settings.ts';
import { logSettingSources } from '../settings/parse-settings.ts';
import { note } from './output.ts';
import { requireNoService } from './settings-place.ts';
import { endOnUnexpectedError, runUntilStopped, serviceReport } from './until-stopped.ts';

/**
 * Runs the agent until SIGTERM or SIGINT; SIGHUP reloads its settings.
 *
 * @throws {OperatorError} when it cannot start
 */
export async function run(): Promise<void> {
  requireNoService(AGENT_SERVICE);
  await joinIfNew();
  let source = new SettingsSource();
  const { settings } = source.read();
  const logTail = new LogTail();
  const log = await createLog(settings.log.level, settings.log.format, undefined, logTail);
  // The SDK prints a line for each lost session.
  if (settings.connector === 'sdk') silenceNativeOutput();
  logSettingSources(log, note);
  endOnUnexpectedError(log);
  const commands = (command: 'restart' | 'stop') =>
    command === 'stop' ? ending.stayStopped('gateway') : void restart();
  const start = (next: Settings) => startAgent(next, log, systemClock, { logTail, diagnose, onCommand: commands });
  let starting: Promise<Agent>;
  let report: ServiceReport | null = null;
  const stop = async () => {
    const running = await starting;
    await Promise.all([report?.stop(), running.stop()]);
  };
  // Installed first: a signal without a handler would end the process.
  const ending = runUntilStopped({ stop }, log);
  const restart = onceAtATime(async () => {
    const fresh = new SettingsSource();
    const next = readSettings(fresh, log);
    if (next === null) return;
    log.info({ by: 'gateway' }, 'restarting');
    source = fresh;
    log.level = next.log.level;
    starting = starting.then((before) => before.stop()).then(() => start(next));
    try {
      agent = await starting;
      await agent.started;
    } catch (error) {
      log.fatal({ err: error }, 'restart failed; exiting');
      process.exit(1);
    }
  });
  reloadOnHangup({ read: () => source.read() }, { reload: async (next) => (await starting).reload(next) }, log);
  starting = start(settings);
  let agent = await starting;
  await agent.started;
  if (totalOf(agent.status()) === 0) showFirstSteps(agent.addresses().api ?? '', log);
  report = await serviceReport(
    programOf(() => agent),
    log,
  );
  await report?.start();
}

/** Runs the checks of `device-agent doctor`, which are loaded only now. */
async function diagnose(): Promise<Finding[]> {
  const { diagnoseAgent } = await import('./doctor.ts');
  return diagnoseAgent({ env: process.env, folder: process.cwd(), isService: false });
}

/** Joins a site when the agent has a code and no authtoken; its code is loaded only then. */
async function joinIfNew(): Promise<void> {
  const start = loadFirstStart();
  if (start === null || (start.code === null && !existsSync(BOOT_FILE))) return;
  const { joinAtFirstStart } = await import('../agent/join/join-site.ts');
  const log = await createLog(start.log.level, start.log.format);
  await joinAtFirstStart(start, log, BOOT_FILE, () => requireApiPort(start));
}

/**
 * Call this before a device joins: an agent that cannot start must not use up a code.
 *
 * @throws {OperatorError} when the agent's API could not listen
 */
export async function requireApiPort({ api }: Pick<FirstStartSettings, 'api'>): Promise<void> {
  const { apiPort, freePorts } = await import('../doctor/ports.ts');
  const taken = (await freePorts([apiPort(api)])).find(({ status }) => status === 'failed');
  if (taken) throw new OperatorError(`nothing was sent: ${taken.detail}; ${taken.advice}`);
}

const totalOf = ({ tunnels }: AgentStatus): number => Object.values(tunnels).reduce((sum, count) => sum + count, 0);

function programOf(agent: () => Agent): SupervisedProgram {
  // The session supervisor makes progress with or without a network.
  return { describe: () => describe(agent().status()), silentMs: () => agent().silentMs() };
}

function describe(status: AgentStatus): string {
  const { session, tunnels, remoteApi } = status;
  const { online, degraded } = tunnels;
  const reason = session.state === 'online' || !session.lastError ? '' : ` (${session.lastError.message})`;
  const up = online + degraded;
  const down = degraded === 0 ? '' : `, ${degraded} without a reachable upstream`;
  const count = `${up} of ${totalOf(status)} tunnels up${down}`;
  const remote = remoteApi?.state === 'failed' ? `; remote API failed (${remoteApi.lastError?.message})` : '';
  return `${session.state}, ${session.gateway}${reason}; ${count}${remote}`;
}

const AFTER_LOG_MS = 50;

/** Says what to do with an agent that has no tunnels: in two lines on a terminal, else as a log line. */
function showFirstSteps(api: string, log: Log): void {
  if (!process.stdout.isTTY) {
    log.info({ command: ownCommand('http 8001') }, 'no tunnels yet; start one');
    return;
  }
  // After the log lines before it, which wait for the next turn of the event loop.
  setTimeout(() => {
    note(
      `\nNo tunnels yet. In another terminal, in this folder, run: ${ownCommand('http 8001')}\n` +
        `Then open ${api}/ or run: ${ownCommand('status')} (when something fails: ${ownCommand('doctor')})\n\n`,
    );
  }, AFTER_LOG_MS).unref();
}

/** Ignores calls while one is being worked on. */
function onceAtATime(work: () => Promise<void>): () => Promise<void> {
  let isWorking = false;
  return async () => {
    if (isWorking) return;
    isWorking = true;
    await work();
    isWorking = false;
  };
}

/** The settings for a restart; null when they are not valid, which is logged. */
function readSettings(source: SettingsSource, log: Log): Settings | null {
  try {
    return source.read().settings;
  } catch (error) {
    log.error({ reason: messageOf(error) }, 'not restarted: the settings are not valid');
    return null;
  }
}

/** Reloads the settings at each SIGHUP. Signals during a reload cause one more reload. */
function reloadOnHangup(source: Pick<SettingsSource, 'read'>, agent: Pick<Agent, 'reload'>, log: Log): void {
  // Closing a terminal ends its programs, as usual.
  if (process.stdout.isTTY) return;
  let wanted = false;
  let isWorking = false;
  process.on('SIGHUP', async () => {
    wanted = true;
    if (isWorking) return;
    isWorking = true;
    while (wanted) {
      wanted = false;
      await reload(source, agent, log);
    }
    isWorking = false;
  });
}

async function reload(source: Pick<SettingsSource, 'read'>, agent: Pick<Agent, 'reload'>, log: Log): Promise<void> {
  try {
    const { settings, restartFor } = source.read();
    await agent.reload(settings);
    log.info({ log_level: settings.log.level, default_policies: settings.defaultPolicies }, 'settings reloaded');
    if (restartFor.length > 0) log.warn({ settings: restartFor }, 'changed settings need a restart');
  } catch (error) {
    const known = error instanceof OperatorError;
    log.error(
      known ? { reason: messageOf(error) } : { err: error },
      'settings reload failed; keeping the previous ones',
    );
  }
}

const STDOUT = 1;
const NULL_DEVICE = '/dev/null';

/**
 * Keeps what native code prints off the terminal: from now on, descriptor 1 leads to /dev/null. Node.js and the log have
 * reopened the terminal on descriptors of their own. Does nothing where they have not, or when standard output is no
 * terminal.
 *
 * Call it while nothing asynchronous is pending: a file that another thread opens meanwhile could get descriptor 1.
 *
 * @throws {Error} when descriptor 1 is another file afterwards; the process must end then
 */
export function silenceNativeOutput(): void {
  if (!isatty(STDOUT) || logsTo(STDOUT) || !hasOwnTerminal(process.stdout) || isBusy()) return;
  // Without it, the next file that is opened would get descriptor 1.
  if (!canOpenNullDevice()) return;
  closeSync(STDOUT);
  const opened = openSync(NULL_DEVICE, 'w');
  if (opened !== STDOUT) throw new Error(`standard output could not be replaced: descriptor ${opened} instead of 1`);
}

function canOpenNullDevice(): boolean {
  try {
    closeSync(openSync(NULL_DEVICE, 'w'));
    return true;
  } catch {
    return false; // no such device here, or no descriptor left
  }
}

/** Whether Node.js writes to the terminal through another descriptor; libuv reopens terminals where it can. */
function hasOwnTerminal(stream: unknown): boolean {
  const fd = (stream as { _handle?: { fd?: unknown } })._handle?.fd;
  return typeof fd === 'number' && fd > 2;
}

/** Whether another thread may be working for this one: on files, or on names, which are looked up in files. */
function isBusy(): boolean {
  return process.getActiveResourcesInfo().some((name) => /^FSReq|ReqWrap$/.test(name));
}
