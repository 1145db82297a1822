import { existsSync, readFileSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { EXIT_UNREACHABLE, hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { openDataFolder } from '../../lib/files/data-folder.ts';
import { createFolder, explainUnreadable, writeDurably } from '../../lib/files/durable-write.ts';
import type { Log } from '../../lib/log/log.ts';
import type { ProxyRules } from '../../lib/network/proxy-rules.ts';
import { backoffDelay } from '../../lib/time/backoff.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';
import { type JoinCode, parseJoinCode } from '../../management/join-code.ts';
import { ENROLMENTS_PATH, Enrolment, LEAVE_PATH } from '../../management/resources/enrolment.ts';
import { BOOT_FILE, type FirstStartSettings } from '../../settings/first-start-settings.ts';
import { type OwnCa, ownCaOf } from '../../settings/learned-cas.ts';
import { ENROLMENT_FILE, JOINED_SETTINGS } from '../../settings/setting-sources.ts';
import { Distrusted, EnrolmentRefused, fetchTimeCa, postVerified, type Reaching } from './gateway-calls.ts';
import { GatewayTime, timeFileIn } from './gateway-time.ts';
import {
  hasJoined,
  type Installation,
  installationFor,
  machineId,
  readInstallation,
  withoutSecret,
  writeInstallation,
} from './installation.ts';

/** What a device keeps of joining. */
export { type Installation, readInstallation } from './installation.ts';

/** The files that joining writes. */
export interface JoinFiles {
  /** See `Installation`; mode 0600. */
  installation: string;
  /** The settings; what joining does not know stays. */
  settings: string;
  settingsMode: number;
  /** For the authtoken alone; null: it is one of the settings. */
  authtoken: string | null;
  /** Whether the settings say where that file is. */
  namesAuthtoken?: boolean;
  /** The gateway's CA. */
  ca: string;
  /** Where the agent keeps what it has learned since. */
  dataDir: string;
}

/** A device at its site. */
export type JoinedDevice = NonNullable<Installation['device']>;

/**
 * Joins a site: enrols, then writes the settings. Interrupted at any point, it can be repeated, and the device stays the
 * same one.
 *
 * @throws {OperatorError} when the gateway refuses the device, or a file cannot be written
 */
export async function joinSite(code: string, files: JoinFiles, options: EnrolOptions): Promise<JoinedDevice> {
  const before = await rememberedIn(files);
  // What the agent's user can write decides no more than whether the key is kept.
  const ownCa = ownCaIn(files) ?? ownCaIn(filesIn(files.dataDir));
  const installation = installationFor(code, before, machineId(), ownCa);
  // Written before the first request: without its key, the device would enrol again as another one after a power cut.
  await writeInstallation(files.installation, installation);
  const { time = new GatewayTime({ file: timeFileIn(dirname(files.installation)), log: null }) } = options;
  const enrolled = await enrol(installation, { ...options, time });
  await writeSettings(files, enrolled);
  const { device_id: id, name, site, domain } = enrolled.enrolment;
  const device = { id, name, site, domain };
  await writeInstallation(files.installation, { ...installation, code: withoutSecret(code), device });
  await forgetFirstStart(files);
  return device;
}

/**
 * What this device remembers of joining. Before it joined by command, it may have joined at its first start.
 *
 * @throws {OperatorError} when the file is damaged or not readable
 */
export async function rememberedIn({ installation, dataDir }: JoinFiles): Promise<Installation | null> {
  return (await readInstallation(installation)) ?? readInstallation(filesIn(dataDir).installation);
}

/** What it got at its first start is in other files now: the name in there would be that of before. */
async function forgetFirstStart(files: JoinFiles): Promise<void> {
  const kept = [files.installation, files.settings, files.ca];
  const { installation, settings, ca } = filesIn(files.dataDir);
  // The settings go first: they name the CA.
  for (const file of [settings, ca, installation]) if (!kept.includes(file)) await rm(file, { force: true });
}

/**
 * Joins a site at the first start of an agent that has a code but no authtoken, and of a copy of its card in another
 * machine. Waits for the network and for an approval as long as it takes.
 *
 * @param before called when it is going to join, before anything is sent
 * @throws {OperatorError} when the gateway refuses the device, or the file of its enrolment is damaged and it has no settings
 */
export async function joinAtFirstStart(
  start: FirstStartSettings,
  log: Log,
  bootFile = BOOT_FILE,
  before: () => Promise<void> = async () => {},
): Promise<void> {
  const code = start.code ?? codeOf(bootFile, log);
  if (code === null) return;
  const files = filesIn(start.dataDir);
  let isKnown = false;
  try {
    const known = await readInstallation(files.installation);
    if (hasJoined(known, code, machineId()) && existsSync(files.settings)) return;
    isKnown =
      known !== null && installationFor(code, known, machineId(), ownCaIn(files)).install_key === known.install_key;
  } catch (err) {
    // A device that has its settings is better online than waiting for somebody who restores the file.
    if (!existsSync(files.settings)) throw err;
    log.error({ err, file: files.installation }, 'enrolment unreadable; this device keeps its settings');
    return;
  }
  // Two processes that start at once must not both make a key.
  const folder = await openDataFolder(start.dataDir);
  try {
    await before();
    await joinWhenPossible(code, start, log);
  } catch (err) {
    // A device that has joined before goes on with what it has, but not as the one that its card was copied from.
    if (!isKnown || !(err instanceof EnrolmentRefused) || !existsSync(files.settings)) throw err;
    log.error({ err, file: files.installation }, 'not joined again; this device keeps its settings');
  } finally {
    await folder.release();
  }
}

async function joinWhenPossible(code: string, start: FirstStartSettings, log: Log): Promise<void> {
  log.info('joining a site');
  const { name, site, domain } = await joinSite(code, filesIn(start.dataDir), {
    name: start.name ?? hostname(),
    proxies: start.proxies,
    time: new GatewayTime({ file: timeFileIn(start.dataDir), log }),
    clock: systemClock,
    deadline: null,
    onWait: logRarely(log),
  });
  log.info({ device_name: name, site, domain }, 'site joined');
}

/** Logs a new reason at once, then after twice as many attempts each time: log writes wear out SD cards. */
function logRarely(log: Log): EnrolOptions['onWait'] {
  let last = '';
  let times = 0;
  return ({ reason, isPending, isDistrusted, wait_ms }) => {
    times = reason === last ? times + 1 : 1;
    last = reason;
    if (!Number.isInteger(Math.log2(times))) return;
    if (isPending) log.info({ reason, wait_ms }, 'waiting for approval');
    else if (isDistrusted) log.warn({ reason, wait_ms }, 'gateway not trusted; joining later');
    else log.warn({ reason, wait_ms }, 'gateway unreachable; joining later');
  };
}

/** In the data folder, which is all that a service may write. */
function filesIn(dataDir: string): JoinFiles {
  return {
    installation: join(dataDir, ENROLMENT_FILE),
    settings: join(dataDir, JOINED_SETTINGS),
    settingsMode: 0o600,
    authtoken: null,
    ca: join(dataDir, 'gateway-ca.pem'),
    dataDir,
  };
}

function codeOf(file: string, log: Log): string | null {
  try {
    return readFileSync(file, 'utf8').trim() || null;
  } catch (error) {
    if (!hasErrno(error, 'ENOENT') && !hasErrno(error, 'ENOTDIR')) {
      log.warn({ file, reason: messageOf(error) }, 'join code not readable');
    }
    return null;
  }
}

/**
 * Ends the enrolment of a device: the gateway forgets it with its authtoken.
 *
 * @throws {EnrolmentRefused} when the gateway refuses, as for a revoked device; any other error when it is unreachable
 */
export async function leaveSite(
  { code: text, install_key }: Installation,
  proxies: ProxyRules,
  files: Pick<JoinFiles, 'ca' | 'dataDir'>,
): Promise<void> {
  const code = parseJoinCode(text);
  if (code === null) return;
  const time = new GatewayTime({ file: null, log: null });
  await postVerified(code, LEAVE_PATH, { install_key }, { proxies, time, ownCa: ownCaIn(files) });
}

/** The CA of the gateway that a device has joined, and what its agent has learned since; null: there is none, or it is not readable. */
function ownCaIn({ ca, dataDir }: Pick<JoinFiles, 'ca' | 'dataDir'>): OwnCa | null {
  try {
    return ownCaOf(dataDir, readFileSync(ca));
  } catch {
    return null;
  }
}

/** The settings come last: once they are there, everything that they name is, too. */
async function writeSettings(files: JoinFiles, { enrolment, caPem, timeCaPem }: Enrolled): Promise<void> {
  await createFolder(dirname(files.settings), 0o750);
  const ownCa = caPem ?? timeCaPem;
  if (ownCa !== null) await writeDurably(files.ca, ownCa, 0o644);
  if (files.authtoken !== null) await writeDurably(files.authtoken, `${enrolment.authtoken}\n`, 0o600);
  const settings = {
    // What would lead the agent elsewhere goes.
    AGENT_GATEWAY: null,
    AGENT_JOIN_CODE: null,
    NGROK_AUTHTOKEN_FILE: files.namesAuthtoken ? files.authtoken : null,
    NGROK_AUTHTOKEN: files.authtoken === null ? enrolment.authtoken : null,
    NGROK_SERVER_ADDR: enrolment.session_address,
    NGROK_CA_CERT: caPem === null ? 'host' : files.ca,
    AGENT_TIME_CA: caPem === null && timeCaPem !== null ? files.ca : null,
    AGENT_DOMAIN: enrolment.domain,
    AGENT_SITE: enrolment.site,
    AGENT_NAME: enrolment.name,
    // The operator may have chosen the other one since.
    AGENT_CONNECTOR: enrolment.connector === 'native' ? 'native' : null,
  };
  const present = await readIfAny(files.settings);
  const text = withSettings(present, settings, ['AGENT_CONNECTOR']);
  await writeDurably(files.settings, text, files.settingsMode);
}

async function readIfAny(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((error: unknown) => {
    if (hasErrno(error, 'ENOENT')) return '';
    throw explainUnreadable(file, error);
  });
}

/** A setting that joining writes; null removes it. */
type JoinedSettings = Readonly<Record<string, string | null>>;

const HEADING = '# Written by device-agent join.';

/**
 * The text of a settings file with other values: lines that set one of the names are replaced where they are, missing ones
 * follow at the end. Everything else stays.
 *
 * @param keep names whose present value stays
 * @throws {OperatorError} when a value could be more than one line
 */
export function withSettings(text: string, settings: JoinedSettings, keep: readonly string[] = []): string {
  const left = new Map(Object.entries(settings));
  if ([...left.values()].some((value) => /\p{Cc}/u.test(value ?? '')))
    throw new OperatorError('the gateway answered with a setting that has control characters: nothing was written');
  const lines = text.split('\n').flatMap((line) => {
    const name = /^\s*(?:export\s+)?([A-Z_]+)\s*=/.exec(line)?.[1];
    if (name === undefined || !(name in settings)) return [line];
    const value = left.get(name);
    const isFirst = left.delete(name);
    if (keep.includes(name)) return [line];
    return isFirst && value !== null ? [`${name}=${value}`] : [];
  });
  const added = [...left].filter(([, value]) => value !== null).map(([name, value]) => `${name}=${value}`);
  if (added.length === 0) return lines.join('\n');
  const before = lines.join('\n').replace(/\n*$/, '');
  const heading = before.includes(HEADING) ? [] : [HEADING];
  return [...(before === '' ? [] : [before]), ...heading, ...added, ''].join('\n');
}

export interface EnrolOptions extends Reaching {
  /** The wanted name. */
  name: string;
  clock: Clock;
  /** Until when an unreachable gateway is tried again, in terms of the clock; null: forever. */
  deadline: number | null;
  /** Called when the device waits for its approval, and when an attempt has failed. */
  onWait: (event: { reason: string; isPending: boolean; isDistrusted?: boolean; wait_ms: number }) => void;
}

/** A device that may come online. */
interface Enrolled {
  enrolment: Enrolment & { authtoken: string };
  /** PEM of the gateway's own CA; null: a public CA signs the certificate for sessions. */
  caPem: string | null;
  /** In that case, PEM of the gateway's own CA all the same: it signs times; null: unknown. */
  timeCaPem: string | null;
}

const BACKOFF = { baseMs: 500, maxMs: 30_000 };

/**
 * Enrols a device. It can be repeated after any interruption: the same installation gets the same device.
 *
 * No secret is sent before the gateway's certificate has been verified with the code's pin.
 *
 * @throws {EnrolmentRefused} when the gateway refuses it
 * @throws {OperatorError} when the code is damaged, the CA is another one than the code's, or time is up
 */
export async function enrol(installation: Installation, options: EnrolOptions): Promise<Enrolled> {
  const code = requireCode(installation.code);
  const { clock, deadline, onWait } = options;
  for (let attempt = 0; ; attempt += 1) {
    const result = await attemptOnce(code, installation.install_key, options);
    if ('enrolment' in result) return result;
    const { reason, isPending, isDistrusted = false } = result;
    const wait_ms = isPending ? result.waitMs : Math.max(BACKOFF.baseMs, backoffDelay(attempt, BACKOFF));
    if (!isPending && deadline !== null && clock.now() + wait_ms > deadline) {
      if (isDistrusted) throw new OperatorError(reason);
      throw new OperatorError(`cannot reach the gateway at ${code.origin}: ${reason}`, EXIT_UNREACHABLE);
    }
    onWait({ reason, isPending, isDistrusted, wait_ms });
    await clock.sleep(wait_ms);
  }
}

/** @throws {OperatorError} exit code 2 when the text is no code */
export function requireCode(text: string): JoinCode {
  const code = parseJoinCode(text);
  if (code?.origin.startsWith('https:')) return code;
  throw new OperatorError('the code is incomplete or damaged: copy all of it, from join- to its end', 2);
}

type Waiting = { isPending: boolean; isDistrusted?: boolean; reason: string; waitMs: number };

async function attemptOnce(
  code: JoinCode,
  installKey: string,
  { name, ...reaching }: EnrolOptions,
): Promise<Enrolled | Waiting> {
  try {
    const body = { install_key: installKey, secret: code.secret, name };
    const { json, caPem } = await postVerified(code, ENROLMENTS_PATH, body, reaching);
    const enrolment = Enrolment.parse(json);
    const { authtoken, retry_after_s } = enrolment;
    if (authtoken === null) {
      return {
        isPending: true,
        reason: `${enrolment.name} waits for an approval`,
        waitMs: (retry_after_s ?? 5) * 1000,
      };
    }
    const enrolled = { ...enrolment, authtoken };
    const ownCa = caPem ?? (await fetchTimeCa(code, reaching));
    if (enrolment.session_ca === 'gateway') return { enrolment: enrolled, caPem: ownCa, timeCaPem: null };
    return { enrolment: enrolled, caPem: null, timeCaPem: ownCa };
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    return { isPending: false, isDistrusted: error instanceof Distrusted, reason: messageOf(error), waitMs: 0 };
  }
}
