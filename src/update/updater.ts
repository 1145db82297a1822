import { mkdir, readdir, rm, statfs } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { EXIT_UNREACHABLE, hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import { createFolder } from '../lib/files/durable-write.ts';
import type { ProxyRules } from '../lib/network/proxy-rules.ts';
import { rootCommand } from '../lib/process/own-command.ts';
import { systemClock } from '../lib/time/clock.ts';
import type { Host } from '../service/host.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE, stateFolderOf } from '../service/service.ts';
import type { ProgramPaths } from '../service/unit.ts';
import { AgentService } from './agent-service.ts';
import { Archive, DataCopies, DataCopy, GatewayCopy, ReplicaCopy } from './data-copy.ts';
import { findRelease, givenKeys, PUBLISHED_PLACE } from './find-release.ts';
import { GatewayService, recordFailedUpdate } from './gateway-service.ts';
import { installationAt } from './installations.ts';
import { type InstalledProgram, type Place, placeOf } from './installed-program.ts';
import { askGateway, OwnGateway, tellGateway } from './own-gateway.ts';
import { type Channel, fileFor, type Release } from './release.ts';
import { whySettled } from './release-choice.ts';
import { download, openSource, type ReleaseSource } from './release-source.ts';
import { ServicesOnTrial, thisMoment } from './service-on-trial.ts';
import { ClusterGatewayService, ClusterTurn, NO_TURN, sharingOf } from './shared-gateway.ts';
import { continueTrial } from './trial.ts';
import { CRASHES, installUpdateUnits, servicesOf, UPDATE_FOLDER, UPDATE_UNIT, WATCHER } from './units.ts';
import { diskFiles } from './update-files.ts';
import { type Outcome, type Sharing, type Trial, UpdateRecords } from './update-records.ts';

/** What a person, or the setting AGENT_UPDATE, asks for. */
export interface Wanted {
  channel: Channel;
  /** A version, also an older one; null: the newest one. */
  to: string | null;
  /** Where releases come from: {@link FROM_GATEWAY}, a URL, a folder; null: where this program was published. */
  from: string | null;
  /** Only what the setting allows, and only while the device is online. */
  automatic: 'security' | 'stable' | null;
  proxies: ProxyRules;
}

/** What there is for this device. */
export interface Available {
  installed: string;
  release: Release;
  source: ReleaseSource;
  /** Why there is nothing to do; null: the release has to be installed. */
  settled: string | null;
}

/** Names the gateway of this device. */
const FROM_GATEWAY = 'gateway';
const ARCHIVES = join(UPDATE_FOLDER, 'packages');
/** Of the gateway of this machine, as it was before the last update. */
const BACKUP = join(UPDATE_FOLDER, 'gateway-backup.tar.gz');
const DOWNLOADS = join(UPDATE_FOLDER, 'download');
/** Of the size of the file: itself, what it contains, and room for the log. */
const SPACE_FACTOR = 5;
/** What npm fetches besides, in bytes: packages with native code. */
const NPM_SPACE = 60e6;

/** Updates the agent of this machine, its gateway, or both if they run the same program. */
export class Updater {
  readonly #records = new UpdateRecords(UPDATE_FOLDER, diskFiles);
  readonly #installation: InstalledProgram;
  #gateway: Promise<OwnGateway | null> | null = null;

  /**
   * @param program paths of the installed program
   * @throws {OperatorError} when it was installed in a way that has no updates
   */
  constructor(
    program: ProgramPaths,
    private readonly host: Host,
  ) {
    this.#installation = installationIn(placeOf(program), host);
  }

  /**
   * Looks for a release, and remembers that it has seen it.
   *
   * @throws {ReleaseRejected} when what the source has is not a valid release for this device
   */
  async find({ channel, to, from, automatic, proxies }: Wanted): Promise<Available> {
    await createFolder(UPDATE_FOLDER, 0o700);
    const history = await this.#records.history();
    const source = await this.#openSource(from, proxies);
    const { release, history: seen } = await findRelease(source, { channel, to }, await givenKeys(), history);
    await this.#records.keepHistory(seen);
    const installed = await this.#installation.installed();
    const settled = whySettled({ installed, release, to, automatic }, history);
    return { installed, release, source, settled };
  }

  /**
   * Fetches a release, puts it beside the installed one, and starts the unit that tries it.
   *
   * @param tell takes a line about each step
   * @throws {OperatorError} with the installed version untouched
   */
  async begin({ installed, release, source }: Available, wanted: Wanted, tell: (line: string) => void): Promise<void> {
    const lock = await onlyUpdate();
    const { version } = release;
    const ask = (state: 'wanted' | 'started') =>
      askGateway(() => this.#ownGateway(wanted.from), { version, state }, wanted.automatic !== null, tell);
    try {
      await this.#requireReady();
      const sharing = this.#hasGateway ? await sharingOf(this.host) : null;
      const turn = this.#turnOf(sharing, release, wanted);
      await turn?.requirePossible();
      await ask('wanted');
      const { place } = this.#installation;
      const files = this.#installation.packages().map((name) => fileFor(release, place.kind, process.arch, name));
      const size = files.reduce((sum, file) => sum + file.size, 0);
      await mkdir(DOWNLOADS, { recursive: true, mode: 0o700 });
      await this.#requireSpace(size);
      // The agent's user reads the program.
      process.umask(0o022);
      const names = files.map(({ name }) => name);
      await removeOthers(DOWNLOADS, names);
      tell(`fetching version ${release.version} (${(size / 1e6).toFixed(1)} MB) from ${source.shown}`);
      for (const file of files) await download(source, file, join(DOWNLOADS, file.name));
      // A further update confirms the one before it: staging removes what that would go back to.
      await this.#records.endTrial();
      const archives = names.map((name) => join(DOWNLOADS, name));
      await this.#installation.stage(release.version, archives);
      for (const archive of archives) await rm(archive);
      if (this.#hasGateway) await this.#backUpGateway(tell);
      const begin = async () => {
        const before = await onTrial(this.#installation.paths, this.host, sharing).before();
        if (wanted.automatic !== null && !before.online) {
          throw new OperatorError(
            'update postponed: the service is not online, so nobody could tell whether the new version works',
          );
        }
        await ask('started');
        await dataCopies(this.#installation.paths, this.host, sharing).forget();
        await this.#installation.provideWatcher(WATCHER);
        await installUpdateUnits(this.#installation.paths, this.host);
        await rm(CRASHES, { force: true });
        const trial: Trial = {
          ...{ version: 1, state: 'staged', from: installed, to: release.version, place, before, sharing },
          ...{ attempts: 0, since: null, reason: null, isJudged: false, hasLostTurn: false },
        };
        await this.#records.keepTrial(trial);
        await this.host.run('systemctl', 'start', '--no-block', UPDATE_UNIT);
      };
      if (turn === null) await begin();
      else await turn.during(begin, tell);
    } finally {
      lock.close();
    }
  }

  /** The turn of this machine's gateway; null: it shares its database with no other one. */
  #turnOf(sharing: Sharing | null, release: Available['release'], { to, automatic }: Wanted): ClusterTurn | null {
    const node = sharing?.node ?? null;
    if (node === null) return null;
    const step = { to: release.version, isAutomatic: automatic !== null, isNamed: to !== null };
    return new ClusterTurn(this.host, node, step);
  }

  /**
   * Waits for the end of the update under way.
   *
   * @returns how it ended
   */
  async end(): Promise<Outcome> {
    for (;;) {
      const trial = await this.#records.trial();
      if (trial === null || trial.state === 'probation') break;
      await systemClock.sleep(1_000);
    }
    const { last } = await this.#records.history();
    if (last !== null) return last;
    throw new OperatorError(`the update ended without a result; see: journalctl -u ${UPDATE_UNIT}`);
  }

  /** How the last update ended; null: there was none. */
  async last(): Promise<Outcome | null> {
    return (await this.#records.history()).last;
  }

  /** The gateway of this device. One that was not reached is looked for again. */
  #ownGateway(from: string | null): Promise<OwnGateway | null> {
    this.#gateway ??= OwnGateway.find(this.host, from === FROM_GATEWAY).catch((error: unknown) => {
      this.#gateway = null;
      throw error;
    });
    return this.#gateway;
  }

  async #openSource(from: string | null, proxies: ProxyRules): Promise<ReleaseSource & { isMirror?: boolean }> {
    if (from !== FROM_GATEWAY) return openSource(from ?? PUBLISHED_PLACE, proxies);
    const gateway = await this.#ownGateway(from).catch((error: unknown) => {
      if (error instanceof OperatorError) throw error;
      const problem = `cannot reach the gateway of this device: ${messageOf(error)}`;
      throw new OperatorError(problem, EXIT_UNREACHABLE, { cause: error });
    });
    if (gateway === null) throw new Error('a gateway that is named is there');
    return gateway.source;
  }

  async #requireReady(): Promise<void> {
    if (!this.host.isBooted) throw new OperatorError('update not supported: systemd is not running on this machine');
    if (servicesOf(this.#installation.paths, this.host).length === 0) {
      throw new OperatorError(
        `service not installed: nothing would try the new version; run ${rootCommand('service install')} first`,
      );
    }
    const trial = await this.#records.trial();
    if (trial !== null && trial.state !== 'probation') {
      throw new OperatorError(`update to ${trial.to} under way (${trial.state}); see: journalctl -u ${UPDATE_UNIT}`);
    }
    const problem = await this.#installation.obstacle();
    if (problem !== null) throw new OperatorError(`update refused: ${problem}`);
  }

  async #requireSpace(size: number): Promise<void> {
    const { kind, folder: program } = this.#installation.place;
    const bytes = size * SPACE_FACTOR + (kind === 'npm' ? NPM_SPACE : 0);
    for (const folder of [UPDATE_FOLDER, program]) {
      const { bavail, bsize } = await statfs(folder);
      if (bavail * bsize >= bytes) continue;
      throw new OperatorError(
        `disk too full for an update: ${folder} needs ${Math.ceil(bytes / 1e6)} MB; free some space (df -h shows the usage)`,
      );
    }
  }

  get #hasGateway(): boolean {
    return servicesOf(this.#installation.paths, this.host).includes(GATEWAY_SERVICE);
  }

  /** For an operator: going back does not need it. */
  async #backUpGateway(tell: (line: string) => void): Promise<void> {
    const { node, cli } = this.#installation.paths;
    await rm(BACKUP, { force: true });
    await this.host.run(node, cli, 'gateway', 'backup', BACKUP);
    tell(`backup of the gateway written: ${BACKUP}`);
  }
}

/**
 * Goes on with the update under way, if any; the unit of updates runs this, in the version before it.
 *
 * @param tell takes the lines of the log
 */
export async function continueUpdate(host: Host, tell: (line: string) => void): Promise<void> {
  const records = new UpdateRecords(UPDATE_FOLDER, diskFiles);
  const trial = await records.trial();
  if (trial === null) return;
  const installation = installationIn(trial.place, host);
  const { paths } = installation;
  const { sharing, to } = trial;
  const node = sharing?.node ?? null;
  const step = { to, isAutomatic: false, isNamed: true };
  const machine = {
    ...{ agent: onTrial(paths, host, sharing, tell), data: dataCopies(paths, host, sharing) },
    ...{ clock: systemClock, moment: thisMoment, tell },
    turn: node === null ? NO_TURN : new ClusterTurn(host, node, step).ofTrial(),
    installed: () => installation.installed(),
    switchTo: (version: string) => installation.switchTo(version),
  };
  const { last: before } = await records.history();
  const report = async () => {
    const { last, rejected } = await records.history();
    // It may have ended before, while the shared database could not take it.
    const isLate = trial.isJudged && (await records.trial()) === null;
    if (last === null || (last.at === before?.at && !isLate)) return;
    const ended = { ...last, isGivenUp: rejected.some(({ version }) => version === last.to) };
    if (servicesOf(paths, host).includes(GATEWAY_SERVICE)) await recordFailedUpdate(host, ended, tell);
    await tellOutcome(host, ended, tell);
  };
  await continueTrial(machine, records).finally(report);
}

async function tellOutcome(
  host: Host,
  { to: version, result: state, reason, isGivenUp }: Outcome & { isGivenUp: boolean },
  tell: (line: string) => void,
): Promise<void> {
  if (state === 'kept') return;
  const given = isGivenUp && state === 'returned' ? GIVEN_UP : '';
  const told = reason !== null && { reason: reason.slice(0, MAX_REASON - given.length) + given };
  await tellGateway(host, { version, state, ...told }, tell);
}

/** Characters of what the gateway is told. */
const MAX_REASON = 200;
const GIVEN_UP = '; given up, so it is not tried again';

const installationIn = (place: Place, host: Host): InstalledProgram =>
  installationAt(place, ARCHIVES, diskFiles, host.run);

function onTrial(
  paths: ProgramPaths,
  host: Host,
  sharing: Sharing | null,
  tell: (line: string) => void = () => {},
): ServicesOnTrial {
  const node = sharing?.node ?? null;
  const gateway = () =>
    node === null ? new GatewayService(host, paths) : new ClusterGatewayService(host, paths, node, tell);
  const services = servicesOf(paths, host);
  return new ServicesOnTrial(
    services.map((service) => (service === GATEWAY_SERVICE ? gateway() : new AgentService(host, paths))),
    host,
  );
}

function dataCopies(paths: ProgramPaths, host: Host, sharing: Sharing | null): DataCopies {
  const archive = (name: string) => new Archive(join(UPDATE_FOLDER, name), diskFiles);
  const [agent, gateway] = [stateFolderOf(AGENT_SERVICE), join(stateFolderOf(GATEWAY_SERVICE), 'gateway')];
  return new DataCopies(
    servicesOf(paths, host).map((service) =>
      service === GATEWAY_SERVICE
        ? new (sharing === null ? GatewayCopy : ReplicaCopy)(gateway, archive('gateway-before.tar'), host.run)
        : new DataCopy(agent, archive('data-before.tar'), host.run),
    ),
  );
}

/** How the last update of this machine failed; null: it did not. @throws EACCES for others than root */
export async function lastFailure(folder = UPDATE_FOLDER): Promise<(Outcome & { isGivenUp: boolean }) | null> {
  const { last, rejected } = await new UpdateRecords(folder, diskFiles).history();
  if (last === null || last.result === 'confirmed') return null;
  return { ...last, isGivenUp: rejected.some(({ version }) => version === last.to) };
}

/** A socket without a file, which the kernel closes with the process. */
const LOCK = '\0device-agent-update';

/** @throws {OperatorError} when another process prepares an update */
async function onlyUpdate(): Promise<Server> {
  const lock = createServer();
  await new Promise<void>((resolve, reject) => {
    lock.once('listening', resolve).once('error', (error) => {
      reject(
        hasErrno(error, 'EADDRINUSE') ? new OperatorError('another update is being prepared; wait for it') : error,
      );
    });
    lock.listen(LOCK);
  });
  return lock;
}

/** Removes parts of other downloads. @param names of the files that are wanted */
async function removeOthers(folder: string, names: readonly string[]): Promise<void> {
  for (const each of await readdir(folder)) {
    if (!names.includes(each.replace(/\.part$/, ''))) await rm(join(folder, each), { recursive: true });
  }
}
